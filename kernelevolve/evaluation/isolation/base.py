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


class Standing:
    """A fork server that is started again when it has died."""

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make
        self._connection = make()

    def get(self) -> Connection:
        """The server, alive as far as one can tell."""
        if self._connection.process.poll() is not None:
            self._connection.close()
            self._connection = self._make()
        return self._connection

    def close(self) -> None:
        """End it and whatever it started."""
        self._connection.close()


class Enclosure:
    """An open room: starts candidates' processes. Close it after the last.

    Args:
        server: The fork server of this room; None for the one of the whole process, outside of any sandbox.
        walls: Namespaces of its own for the candidate in a folder; None where it gets none.
        limits: Resource limits beside the candidate's own.
        shared: Other rooms use the server too: it outlives this one.
    """

    def __init__(self, server: Standing | None = None, walls: Callable[[Path], Mapping[str, Any]] | None = None,
                 limits: Mapping[str, int] | None = None, *, shared: bool = False) -> None:
        self.server, self.shared = server, shared
        self._walls, self._limits = walls, dict(limits or {})

    def await_ready(self) -> None:
        """Wait until candidates can be started at once. Raises WorkerError."""
        if self.server is not None:
            self.server.get().await_ready()

    def start(self, target: str, *, folder: Path, env: Mapping[str, str], cwd: Path,
              limits: Mapping[str, int]) -> Worker:
        """Start `target` as foreign code; `folder` is its own. Raises WorkerError."""
        walls = self._walls(folder) if self._walls is not None else None
        return workers.start(target, env=env, cwd=cwd, limits={**self._limits, **limits}, foreign=True, walls=walls,
                             server=self.server.get() if self.server is not None else None)

    def close(self) -> None:
        """End the room's server and whatever still runs in it, unless others share it."""
        if self.server is not None and not self.shared:
            self.server.close()


class Isolation(ABC):
    """A wall around candidates' processes. The level used is stored with every result and never lowered silently."""

    name: str

    @abstractmethod
    def available(self) -> tuple[bool, str]:
        """Whether this machine offers it, found by trying, and the reason when not."""

    @abstractmethod
    def open(self, room: Room) -> Enclosure:
        """Begin to set up what the candidates of `room` run in. Returns before it is ready."""

    def shared_folder(self) -> Path | None:
        """Where to make rooms' folders for them to share one server; None for wherever, and a server for each."""
        return None
