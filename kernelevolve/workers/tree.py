"""A worker's processes as /proc shows them: how many, how large, and how to end all of them.

A process that forks faster than it is killed wins; one that is stopped first does not. So everything that can be found
is stopped, until nothing new is found, and only then killed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_GIVE_UP_S = 1.5
_HAS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
"""Whether the kernel lists a thread's children, which spares reading every process of the machine."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One process. `resident_bytes` includes what it shares with others."""

    pid: int
    parent: int
    state: str
    threads: int
    resident_bytes: int

    @property
    def alive(self) -> bool:
        """Not only a record that its parent has still to read. A process may outlive its first thread."""
        return self.state not in "ZX" or self.threads > 1


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """What a set of processes uses: processes, threads of all of them, bytes of memory."""

    processes: int
    threads: int
    resident_bytes: int

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Usage:
        """Sum over the living."""
        alive = [e for e in entries if e.alive]
        return cls(len(alive), sum(e.threads for e in alive), sum(e.resident_bytes for e in alive))


def read(pid: int) -> Entry | None:
    """The process `pid`; None when it is gone."""
    text = _content(f"/proc/{pid}/stat")
    # The command name may hold spaces and brackets: the fields start after the last bracket.
    fields = text.rpartition(b")")[2].split()
    if len(fields) < 22:
        return None
    return Entry(pid, int(fields[1]), fields[0].decode(), int(fields[17]), int(fields[21]) * _PAGE_BYTES)


def descendants(*roots: int) -> list[Entry]:
    """The processes `roots` and all below them, parents first."""
    return _walk(roots) if _HAS_CHILDREN else _sift(roots)


def children(pid: int) -> list[int]:
    """Direct children of `pid`."""
    if _HAS_CHILDREN:
        return list(_listed_children(pid))
    return [e.pid for e in _all() if e.parent == pid]


def seen_from_outside(sandbox: int, number: int) -> int | None:
    """The worker whose keeper has `number` inside a sandbox; both PIDs as this process sees them.

    `sandbox` is the process that the sandbox was started with.
    """
    for entry in descendants(sandbox):
        numbers = _numbers(entry.pid)
        if len(numbers) > 2 and numbers[1] == number:
            return next((e.pid for e in descendants(entry.pid) if _numbers(e.pid)[-1:] == [2]), None)
    return None


def _numbers(pid: int) -> list[int]:
    """A process's PID in each of the nested namespaces that it is in, outermost first."""
    for line in _content(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"NSpid:"):
            return [int(word) for word in line.split()[1:]]
    return []


def end(members: Callable[[], list[Entry]], reap: Callable[[], None]) -> bool:
    """Kill every process that `members` finds; whether none is left. `reap` collects those that were children here."""
    deadline = time.monotonic() + _GIVE_UP_S
    stopped: set[int] = set()
    while True:
        fresh = [e.pid for e in members() if e.alive and e.pid not in stopped]
        if not fresh:
            break
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
        stopped.update(fresh)
        if time.monotonic() > deadline:
            break
    for pid in stopped:
        _send(pid, signal.SIGKILL)
    pause_s = 0.0005
    while True:
        reap()
        left = [e.pid for e in members() if e.alive]
        if not left:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in left:
            _send(pid, signal.SIGKILL)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.02)


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, what)


def _all() -> list[Entry]:
    found = (read(int(name)) for name in _names("/proc") if name.isdigit())
    return [e for e in found if e is not None]


def _sift(roots: Iterable[int]) -> list[Entry]:
    by_parent: dict[int, list[Entry]] = {}
    by_pid: dict[int, Entry] = {}
    for entry in _all():
        by_parent.setdefault(entry.parent, []).append(entry)
        by_pid[entry.pid] = entry
    found = [by_pid[pid] for pid in roots if pid in by_pid]
    for entry in found:  # it grows under way
        found += by_parent.get(entry.pid, [])
    return found


def _walk(roots: Iterable[int]) -> list[Entry]:
    found = [entry for pid in roots if (entry := read(pid)) is not None]
    seen = {entry.pid for entry in found}
    for entry in found:  # it grows under way
        for pid in _listed_children(entry.pid):
            if pid not in seen and (child := read(pid)) is not None:
                seen.add(pid)
                found.append(child)
    return found


def _listed_children(pid: int) -> Iterable[int]:
    with contextlib.suppress(OSError):
        for thread in _names(f"/proc/{pid}/task"):
            yield from map(int, _content(f"/proc/{pid}/task/{thread}/children").split())


def _names(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _content(path: str) -> bytes:
    """A whole file, or nothing when it is gone. Read the short way: this is done for every process of the machine."""
    text = b""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while data := os.read(fd, 65536):
                text += data
        finally:
            os.close(fd)
    return text
