"""What an isolation level is: where candidates' processes are forked, and what stands around each of them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernelevolve import workers
from kernelevolve.workers import Connection, Worker


@dataclasses.dataclass(frozen=True, kw_only=True)
class Room:
    """What the candidates of one evaluator have between them, and each may use."""

    root: Path
    """The folder that holds every candidate's own: all that can be written."""
    memory_bytes: int
    tasks: int
    """Processes and threads together."""
    memory_files_bytes: int
    """Size of /tmp and of /dev/shm, each, where they are the candidate's own."""


class Enclosure:
    """An open room: starts candidates' processes. Close it after the last.

    Args:
        server: Starts the fork server of this room; None for the one that the whole process shares.
        walls: Namespaces of its own for the candidate in a folder; None where it gets none.
        limits: Resource limits beside the candidate's own.
    """

    def __init__(self, server: Callable[[], Connection] | None = None,
                 walls: Callable[[Path], Mapping[str, Any]] | None = None,
                 limits: Mapping[str, int] | None = None) -> None:
        self._make, self._walls, self._limits = server, walls, dict(limits or {})
        self._server: Connection | None = server() if server is not None else None

    def await_ready(self) -> None:
        """Wait until candidates can be started at once. Raises WorkerError."""
        if self._server is not None:
            self._server.await_ready()

    def start(self, target: str, *, folder: Path, env: Mapping[str, str], cwd: Path,
              limits: Mapping[str, int]) -> Worker:
        """Start `target` as foreign code; `folder` is its own. Raises WorkerError."""
        if self._make is not None and self._server is not None and self._server.process.poll() is not None:
            self._server.close()
            self._server = self._make()
        walls = self._walls(folder) if self._walls is not None else None
        return workers.start(target, env=env, cwd=cwd, limits={**self._limits, **limits}, foreign=True, walls=walls,
                             server=self._server)

    def close(self) -> None:
        """End the room's server and whatever still runs in it."""
        if self._server is not None:
            self._server.close()
            self._server = None


class Isolation(ABC):
    """A wall around candidates' processes. The level used is stored with every result and never lowered silently."""

    name: str

    @abstractmethod
    def available(self) -> tuple[bool, str]:
        """Whether this machine offers it, found by trying, and the reason when not."""

    @abstractmethod
    def open(self, room: Room) -> Enclosure:
        """Begin to set up what the candidates of `room` run in. Returns before it is ready."""
