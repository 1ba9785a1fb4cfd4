"""A candidate's process seen from outside: its private folder, its limits, and how it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelevolve import languages, workers
from kernelevolve.errors import WorkerError
from kernelevolve.evaluation import verdict
from kernelevolve.evaluation.isolation import Enclosure
from kernelevolve.evaluation.isolation.watch import FolderWatch
from kernelevolve.evaluation.verdict import Verdict
from kernelevolve.platforms import PLATFORMS
from kernelevolve.records import Status
from kernelevolve.settings import Settings
from kernelevolve.workers import Channel, ChannelClosedError

RUNNER = "kernelevolve.evaluation.inside.runner:main"
_LOOK_S = 0.1
_GRACE_S = 15.0
"""How long the judge may take to notice that a runner is gone."""


class EndedError(Exception):
    """The candidate's fate is decided."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


class SilentError(Exception):
    """The judge died or does not answer: this package's own fault."""


@dataclasses.dataclass
class Candidate:
    """One candidate: start, build, watch, end. Everything it writes goes to `folder`, which `close` removes."""

    source: str
    language: str
    settings: Settings
    threads: int
    memory_bytes: int
    root: Path
    platform: str = "cpu"
    enclosure: Enclosure = dataclasses.field(default_factory=Enclosure)
    """Where its process is started; `root` is the folder that it may write below."""

    def __post_init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="candidate-", dir=self.root))
        self.build_dir = self.folder / "build"
        self.worker: workers.Worker | None = None
        self.left_behind = 0
        """Other processes than its own that were still alive when it was ended; known after `end`."""
        self._decided: Verdict | None = None
        self._watch = FolderWatch(self.folder, most_bytes=self.settings.folder_bytes, most_files=self.settings.files)

    def start(self) -> None:
        """Start its process, with home, temporary and cache folders of its own."""
        private = {name: self.folder / name for name in ("build", "home", "tmp", "cache", "work")}
        for path in private.values():
            path.mkdir()
        (self.folder / "kernel.py").write_text(self.source, encoding="utf-8", errors="replace")
        # A device's driver reserves far more addresses than it uses memory: there, private writable memory is limited.
        space = {"RLIMIT_AS" if PLATFORMS[self.platform].address_space else "RLIMIT_DATA": self.memory_bytes}
        variables = {
            languages.BUILD_DIR: str(self.build_dir),
            "HOME": str(private["home"]),
            "TMPDIR": str(private["tmp"]),
            "XDG_CACHE_HOME": str(private["cache"]),
            "TORCHINDUCTOR_CACHE_DIR": str(private["cache"] / "inductor"),
            "TRITON_CACHE_DIR": str(private["cache"] / "triton"),
            "OMP_NUM_THREADS": str(self.threads),
        }
        self.worker = self.enclosure.start(RUNNER, folder=self.folder, env=variables, cwd=private["work"],
                                           limits={"RLIMIT_FSIZE": self.settings.file_bytes, **space})
        self.worker.channel.distrust()

    def build(self) -> None:
        """Import the source, which compiles what it compiles. Raises EndedError."""
        assert self.worker is not None
        message = {"op": "load", "path": str(self.folder / "kernel.py"), "build_dir": str(self.build_dir),
                   "language": self.language, "name": "ModelNew", "threads": self.threads,
                   "platform": self.platform}
        try:
            self.worker.channel.send(message, timeout_s=10)
        except (ChannelClosedError, TimeoutError):
            raise EndedError(self._how_it_ended("build")) from None
        answer = self.await_answer(self.worker.channel, stage="build", limit_s=self.settings.build_timeout_s)
        if not isinstance(answer, dict):
            raise EndedError(Verdict(Status.DISHONEST, "the answer of its process is malformed"))
        if "error" in answer:
            raise EndedError(verdict.of_error(answer["error"], building=True))
        self.check_folder()

    def await_answer(self, channel: Channel, *, stage: str, limit_s: float) -> Any:
        """Wait for a message on `channel` while watching this process: its life, its output, its time.

        `channel` is its own, or the judge's that works on it. Raises EndedError with the verdict, or SilentError when
        the judge is the one that fails.
        """
        assert self.worker is not None
        own = channel is self.worker.channel
        deadline = time.monotonic() + limit_s
        while True:
            ready, _, _ = select.select([channel.fileno()], [], [], _LOOK_S)
            if ready:
                try:
                    answer, fds = channel.recv(timeout_s=_GRACE_S)
                except TimeoutError:
                    if own:
                        return self._decide(Verdict(Status.CRASHED, f"half an answer during {stage}"), raising=True)
                    raise SilentError("the judge stopped in the middle of an answer") from None
                except (ChannelClosedError, RecursionError):
                    if own:
                        raise EndedError(self._how_it_ended(stage)) from None
                    raise SilentError(f"the judge died during {stage}") from None
                for fd in fds:
                    os.close(fd)
                return answer
            if self._decided is not None:
                if time.monotonic() > deadline:
                    raise SilentError(f"the judge does not answer, {_GRACE_S:g} s after the candidate's end")
                continue
            found = self._look(stage, deadline, limit_s)
            if found is not None:
                self._decide(found, raising=own)
                deadline = time.monotonic() + _GRACE_S

    def _look(self, stage: str, deadline: float, limit_s: float) -> Verdict | None:
        assert self.worker is not None
        if self.worker.log_bytes > self.settings.output_bytes:
            return Verdict(Status.RESOURCE_LIMIT,
                           f"printed more than {self.settings.output_bytes} bytes during {stage}")
        if time.monotonic() > deadline:
            status = Status.COMPILE_TIMEOUT if stage == "build" else Status.TIMEOUT
            return Verdict(status, f"{stage} took longer than its limit of {limit_s:g} s; its processes were killed")
        end = self.worker.poll(usage=True)
        if end is not None:  # a descendant may still hold the channel open: the end of the process itself decides
            return verdict.of_exit(end.code, stage=stage)
        return self._too_much(stage)

    def _too_much(self, stage: str) -> Verdict | None:
        """Verdict on what all of its processes use together, as of some tenths of a second ago."""
        assert self.worker is not None
        used = self.worker.usage
        if used is not None and used.threads > self.tasks:
            return Verdict(Status.RESOURCE_LIMIT, f"{used.processes} processes with {used.threads} threads during "
                                                  f"{stage}; expected at most {self.tasks} threads of all together")
        if used is not None and used.resident_bytes > self.memory_bytes:
            return Verdict(Status.OUT_OF_MEMORY, f"its processes used {used.resident_bytes} bytes of memory during "
                                                 f"{stage}; expected at most {self.memory_bytes}")
        excess = self._watch.step()
        return Verdict(Status.DISK_LIMIT, f"{excess} during {stage}") if excess is not None else None

    @property
    def tasks(self) -> int:
        """Processes and threads that it may have at a time."""
        return most_tasks(self.settings, self.threads)

    def decided(self, stage: str) -> Verdict:
        """Verdict on a process that the judge found gone."""
        return self._decided or self._how_it_ended(stage)

    def _how_it_ended(self, stage: str) -> Verdict:
        assert self.worker is not None
        end = self.worker.wait(2.0)
        return self._decided or verdict.of_exit(end.code if end else None, stage=stage)

    def _decide(self, found: Verdict, *, raising: bool = False) -> None:
        assert self.worker is not None
        self._decided = found
        self.worker.kill()
        if raising:
            raise EndedError(found)

    def check_folder(self) -> None:
        """Raise EndedError when it has left too much on the disk."""
        excess = self._watch.whole()
        if excess is not None:
            raise EndedError(Verdict(Status.DISK_LIMIT, excess))

    def end(self) -> str:
        """Kill its processes; what it printed."""
        if self.worker is None:
            return ""
        with contextlib.suppress(WorkerError):
            self.worker.kill()
        self.left_behind = self.worker.left_behind
        return self.worker.log()

    def close(self) -> None:
        """Remove its folder, unless the settings keep it."""
        if not self.settings.keep:
            workers.remove(self.folder)


def most_tasks(settings: Settings, threads: int) -> int:
    """The limit on a candidate's processes and threads together: room for compilers, and for several thread pools."""
    return settings.tasks or 512 + 8 * threads
