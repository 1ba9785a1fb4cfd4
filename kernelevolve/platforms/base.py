"""What a platform plug-in knows about a device: whether it is here, its facts, its measured peaks."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelevolve import workers
from kernelevolve.errors import WorkerError

if TYPE_CHECKING:
    from kernelevolve.platforms.device import Device

log = logging.getLogger(__name__)


class Platform(ABC):
    """A device that candidates run on."""

    name: str
    address_space: bool = True
    """Whether a limit on address space is a limit on memory; device drivers reserve far more than they use."""

    @property
    @abstractmethod
    def device(self) -> Device:
        """Where its tensors live, and how processes share them. Imports torch, which the caller may have avoided."""

    @abstractmethod
    def available(self) -> tuple[bool, str]:
        """Whether this machine has it, and the reason when it has not."""

    @abstractmethod
    def facts(self, *, again: bool = False) -> dict[str, Any]:
        """Model, sizes, versions and measured peaks, as plain JSON values. Measured once per machine, then cached.

        `again` measures the peaks once more and keeps the larger of each: a first measurement on a busy machine is
        too low, and would make an honest kernel look faster than the machine.
        """

    @property
    @abstractmethod
    def threads(self) -> int:
        """Host threads that both sides of a timing use."""

    @property
    @abstractmethod
    def flush_bytes(self) -> int:
        """Bytes to overwrite so that nothing of a former call is left in any cache."""

    @property
    def lock_name(self) -> str:
        """What one timing at a time is about: the platform, or a device of it."""
        return self.name

    def conditions(self, pids: Sequence[int] = ()) -> dict[str, Any]:
        """What may disturb a timing, now. Read before and after one; `evaluation.conditions` makes words of it.

        Where they can be read: "clock_mhz"; "throttled_count", which only ever rises; "throttled", the reasons why the
        device is slowed down now; "load"; and in processor seconds since the machine's start "busy_s", "idle_s",
        "steal_s", and "own_s" of the processes `pids`.
        """
        return {}

    def environment(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The facts with an id: a hash of all that can change a measurement."""
        body = json.dumps(dict(facts), sort_keys=True)
        return {"id": hashlib.sha256(body.encode()).hexdigest()[:12], "platform": self.name, **facts}

    @contextlib.contextmanager
    def timing_lock(self, timeout_s: float) -> Iterator[float]:
        """Hold the device for one timing session; yields the seconds waited. Other processes of this user queue.

        Raises WorkerError after `timeout_s`. The lock is the kernel's, so it ends with its holder however that dies.
        """
        path = cache_dir() / f"timing-{self.lock_name}.lock"
        start = time.monotonic()
        with path.open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() - start > timeout_s:
                        raise WorkerError(
                            f"another process has been timing on {self.name} for over {timeout_s:g} s; "
                            f"see who holds {path} (`lsof {path}`) or raise lock_timeout_s"
                        ) from None
                    time.sleep(0.02)
            yield time.monotonic() - start

    def kept_peaks(self, identity: Sequence[Any], target: str, payload: Mapping[str, Any], *, timeout_s: float,
                   again: bool) -> dict[str, float]:
        """Peaks as `target`, run in a worker with `payload`, measured them here once; what is known where that fails.

        Args:
            identity: What the peaks belong to: another model, driver or compiler is measured anew.
            target: "package.module:function".
            payload: Its argument.
            timeout_s: Limit on it.
            again: Measure once more, and keep the larger of each.
        """
        name = hashlib.sha256(json.dumps(list(identity)).encode()).hexdigest()[:12]
        path = cache_dir() / f"peaks-{self.name}-{name}.json"
        known: dict[str, float] = {}
        with contextlib.suppress(OSError, ValueError):  # not measured yet, or a torn file: measure now
            known = json.loads(path.read_text())
        if known and not again:
            return known
        with self.timing_lock(900.0):
            try:
                found: dict[str, float] = workers.call(target, dict(payload), timeout_s=timeout_s)
            except WorkerError as error:
                log.warning("the peaks of %s could not be measured: %s", self.name, error)
                return known
        found = {name: max(value, known.get(name, 0.0)) for name, value in found.items()}
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(found))
        part.replace(path)
        return found


def cache_dir() -> Path:
    """The package's folder for what can be made again: $XDG_CACHE_HOME/kernelevolve, else ~/.cache/kernelevolve."""
    base = os.environ.get("XDG_CACHE_HOME")
    path = (Path(base) if base else Path.home() / ".cache") / "kernelevolve"
    path.mkdir(parents=True, exist_ok=True)
    return path
