"""A bubblewrap sandbox with a fork server inside; each candidate in namespaces of its own within it.

A fresh sandbox per candidate would cost 2 s of importing torch each. Evaluators of one process share a sandbox unless
they want their folders in a place of their own. What the sandbox shows is in `exposed.py`, what a candidate sees of
that in `workers/namespaces.py`.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from kernelevolve import workers
from kernelevolve.evaluation.isolation import exposed
from kernelevolve.evaluation.isolation.base import Enclosure, Isolation, Room, Standing
from kernelevolve.workers import Connection, scrubbed

_PROBE_S = 30
_MACHINE_PROC = "/.proc"
_COVERED = (Path("/tmp"), Path("/dev/shm"))  # noqa: S108 - each candidate gets its own
# HOME is the server's; candidates have one in their folder. Without /etc/passwd a user has no name but this one, and
# some versions of torch want one while they are imported.
_ENVIRONMENT = {"HOME": "/tmp", "LOGNAME": "candidate"}  # noqa: S108


class Bubblewrap(Isolation):
    """No network, no home, a read-only system, and nobody else to be seen."""

    name = "bubblewrap"

    def available(self) -> tuple[bool, str]:
        """Whether `bwrap` is here and a candidate's namespaces can be made inside it, tried once per process."""
        return _probe()

    def open(self, room: Room) -> Enclosure:
        """Start the sandbox and the server in it, unless the room is in the shared folder, whose sandbox runs."""
        root, shared = room.root.resolve(), _shared
        if shared is not None and shared.owner == os.getpid() and root.parent == shared.folder:
            root, server = shared.folder, shared.server
        else:
            shared, server = None, _standing(root)
        kept = tuple(str(p) for p in exposed.readable() if any(p.is_relative_to(c) for c in _COVERED))
        limits = {}
        # From 5.14 on the kernel counts the processes of a user namespace apart; before, all of the user's. Root is
        # never limited, in no namespace: there, and everywhere, the tasks are counted from outside as well.
        if os.getuid() != 0 and _kernel() >= (5, 14):
            limits["RLIMIT_NPROC"] = room.tasks

        def walls(folder: Path) -> dict[str, Any]:
            return {"hidden": _hidden(root), "folder": str(folder.resolve()), "kept": kept,
                    "memory_files_bytes": room.memory_files_bytes}

        return Enclosure(server, walls, limits, shared=shared is not None)

    def shared_folder(self) -> Path:
        """A private temporary folder whose sandbox lives as long as this process."""
        global _shared
        with _shared_lock:
            if _shared is not None and _shared.owner == os.getpid() and not _shared.folder.exists():
                _shared.server.close()  # `workers.shutdown` removed the folder, as it does when this process ends
                _shared = None
            if _shared is None or _shared.owner != os.getpid():
                folder = Path(tempfile.mkdtemp(prefix="kernelevolve-")).resolve()
                workers.guard(folder)
                _shared = _Shared(os.getpid(), folder, _standing(folder))
            return _shared.folder


@dataclasses.dataclass(frozen=True)
class _Shared:
    owner: int
    folder: Path
    server: Standing


_shared: _Shared | None = None
_shared_lock = threading.Lock()


@atexit.register
def _close_shared() -> None:
    global _shared
    if _shared is not None and _shared.owner == os.getpid():
        _shared.server.close()
        workers.remove(_shared.folder)
    _shared = None


def _standing(root: Path) -> Standing:
    return Standing(lambda: Connection(lambda command: [*arguments(root), *command], environment=_ENVIRONMENT))


def arguments(root: Path) -> list[str]:
    """The command line of `bwrap` up to the command; `root` is all that can be written."""
    words = [
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "sandbox",
        "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",  # noqa: S108 - the sandbox's own
    ]
    for link, target in exposed.links().items():
        words += ["--symlink", target, str(link)]
    for path in exposed.readable():
        words += ["--ro-bind", str(path), str(path)]
    for path in exposed.devices():
        words += ["--dev-bind", str(path), str(path)]
    if os.getuid() == 0:
        # For root, bwrap covers parts of the /proc that it mounts, and the kernel then forbids a candidate's namespace
        # to mount a whole one, unless a whole one is there. Candidates do not see this either: it is hidden from them.
        words += ["--bind", "/proc", _MACHINE_PROC]
    words += ["--bind", str(root), str(root), "--chdir", str(root)]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/"]


def _hidden(root: Path) -> list[str]:
    return [str(root), _MACHINE_PROC]


@functools.cache
def _probe() -> tuple[bool, str]:
    if not sys.platform.startswith("linux"):
        return False, "it is for Linux"
    if shutil.which("bwrap") is None:
        return False, ("`bwrap` is not on PATH; install it with `apt-get install bubblewrap` or "
                       "`dnf install bubblewrap`")
    with tempfile.TemporaryDirectory(prefix="kernelevolve-probe-") as name:
        root = Path(name).resolve()
        (root / "own").mkdir()
        command = [*arguments(root), sys.executable, "-m", "kernelevolve.workers.probe",
                   str(root / "own"), *_hidden(root)]
        try:
            done = subprocess.run(command, env=scrubbed(), capture_output=True, text=True, errors="replace",
                                  stdin=subprocess.DEVNULL, timeout=_PROBE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return False, f"the sandbox does not start: {error}"
        if done.returncode != 0 or not (root / "own" / "written").exists():
            lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
            return False, (f"the sandbox does not start: {lines[-1][:300]}. It needs unprivileged user namespaces, "
                           "which some systems switch off and most containers forbid")
    return True, ""


def _kernel() -> tuple[int, int]:
    numbers = platform.release().split(".")
    try:
        return int(numbers[0]), int(numbers[1].partition("-")[0])
    except (IndexError, ValueError):
        return 0, 0
