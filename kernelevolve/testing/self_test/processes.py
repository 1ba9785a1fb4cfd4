"""What /proc says about processes: descendants, this process's own memory, and what is left over."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path


def _parents() -> dict[int, int]:
    """Parent by process. The command name may hold brackets: the fields start after the last one."""
    found: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def descendants(root: int | None = None) -> set[int]:
    """Processes below `root` (this process by default), zombies included.

    Complete even for daemons: the process server is the subreaper of all it starts, so that whoever loses its parent
    becomes a child of the server, which is a child of this process.
    """
    parents = _parents()
    found = {os.getpid() if root is None else root}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found - {os.getpid() if root is None else root}


def describe(pid: int) -> str:
    """A process's number and command line, for a message."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        words = ""
    return f"{pid} {words[:80]}".strip()


def resident_bytes() -> int:
    """This process's resident set."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """Largest resident set seen."""

    def __init__(self) -> None:
        self.before_bytes = self.bytes = resident_bytes()

    @property
    def growth_bytes(self) -> int:
        """How far it rose above the start."""
        return self.bytes - self.before_bytes


@contextlib.contextmanager
def watch_memory(every_s: float = 0.01) -> Iterator[Peak]:
    """Sample this process's resident set while the block runs."""
    peak, done = Peak(), threading.Event()

    def sample() -> None:
        while not done.wait(every_s):
            peak.bytes = max(peak.bytes, resident_bytes())

    thread = threading.Thread(target=sample, daemon=True, name="memory")
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak.bytes = max(peak.bytes, resident_bytes())


def wait_gone(before: set[int], timeout_s: float) -> set[int]:
    """Descendants that are not in `before`, once none is left or `timeout_s` has passed."""
    deadline = time.monotonic() + timeout_s
    while (left := descendants() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def gpu_used_mib() -> float | None:
    """Memory in use on all NVIDIA devices together, in MiB; None where nvidia-smi does not answer."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        return float(sum(float(line) for line in done.stdout.split()))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
