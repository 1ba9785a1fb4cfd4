"""A fork server inside one podman or docker container per evaluator, with quotas that the kernel enforces.

The image is empty: what the candidates need of this machine is bound read-only, as at level bubblewrap. Candidates of
one evaluator share the container one after another; they do not get namespaces of their own within it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from kernelevolve import workers
from kernelevolve.errors import WorkerError
from kernelevolve.evaluation.isolation import exposed
from kernelevolve.evaluation.isolation.base import Enclosure, Isolation, Room, Standing
from kernelevolve.workers import Connection, scrubbed

ENGINES = ("podman", "docker")
IMAGE = "localhost/kernelevolve-empty:1"
_PROBE_S = 10
_SERVER_BYTES = 2 * 2**30
_SERVER_TASKS = 64
_EMPTY_TAR = bytes(10240)


class Container(Isolation):
    """As bubblewrap, with quotas on memory and processes for all that runs inside."""

    name = "container"

    def available(self) -> tuple[bool, str]:
        """Whether an engine answers, asked once per process."""
        engine, reason = find_engine()
        return engine is not None, reason

    def open(self, room: Room) -> Enclosure:
        """Start the container and the server in it. Raises WorkerError."""
        engine, reason = find_engine()
        if engine is None:
            raise WorkerError(f"no container engine: {reason}")
        _make_image(engine)
        return Enclosure(Standing(lambda: _connect(engine, room)))


def arguments(engine: str, room: Room, meeting: Path, variables: list[str]) -> list[str]:
    """The command line up to the command. `meeting` is the folder of the socket, `variables` name what is passed on."""
    root = room.root.resolve()
    memory, tasks = str(room.memory_bytes + _SERVER_BYTES), str(room.tasks + _SERVER_TASKS)
    words = [
        engine, "run", "--rm", "--pull", "never", "--network", "none", "--read-only", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges", "--ipc", "private", "--hostname", "sandbox",
        "--memory", memory, "--memory-swap", memory, "--pids-limit", tasks,
        "--shm-size", str(room.memory_files_bytes), "--tmpfs", f"/tmp:rw,size={room.memory_files_bytes}",  # noqa: S108
        "--user", f"{os.getuid()}:{os.getgid()}", "--workdir", str(root),
    ]
    if engine == "podman" and os.getuid() != 0:
        words += ["--userns", "keep-id"]
    for path in exposed.readable():
        words += ["--volume", f"{path}:{path}:ro"]
    for path in exposed.links():
        words += ["--volume", f"{path.resolve()}:{path}:ro"]
    for path in exposed.devices():
        words += ["--device", str(path)]
    words += ["--volume", f"{root}:{root}:rw", "--volume", f"{meeting}:{meeting}:ro"]
    for name in variables:
        words += ["--env", name]
    return [*words, IMAGE]


@functools.cache
def find_engine() -> tuple[str | None, str]:
    """The first engine that answers, or None and what each of them said."""
    reasons = []
    for engine in ENGINES:
        if shutil.which(engine) is None:
            reasons.append(f"{engine} is not installed")
            continue
        try:
            done = subprocess.run([engine, "info"], capture_output=True, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, timeout=_PROBE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            reasons.append(f"{engine} does not answer: {error}")
            continue
        if done.returncode == 0:
            return engine, ""
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        reasons.append(f"{engine} does not answer: {lines[-1][:200]}")
    return None, "; ".join(reasons)


def _make_image(engine: str) -> None:
    here = subprocess.run([engine, "image", "inspect", IMAGE], capture_output=True, timeout=60, check=False)
    if here.returncode != 0:
        made = subprocess.run([engine, "import", "-", IMAGE], input=_EMPTY_TAR, capture_output=True, timeout=60,
                              check=False)
        if made.returncode != 0:
            raise WorkerError(f"{engine} cannot make an empty image: {made.stderr.decode(errors='replace')[-500:]}")


def _connect(engine: str, room: Room) -> Connection:
    meeting = Path(tempfile.mkdtemp(prefix="kernelevolve-"))
    workers.guard(meeting)
    variables = {"HOME": "/tmp"}  # noqa: S108 - the container's own
    names = sorted(scrubbed() | variables)
    return Connection(lambda command: [*arguments(engine, room, meeting, names), *command], environment=variables,
                      socket_path=meeting / "server")
