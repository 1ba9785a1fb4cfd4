"""How much a candidate's folder holds, read a little at a time while the candidate works on it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_SLICE_S = 0.004
_PAUSE_S = 1.0
_PAUSE_SHARE = 30
"""Between two readings it rests for a second, or for so many times what the former took."""
_LONG_PATH = 2000
_MOST_FOLDERS = 64


class FolderWatch:
    """Bytes and files below `path`, against their limits. Links are not followed."""

    def __init__(self, path: Path, *, most_bytes: int, most_files: int) -> None:
        self.path, self.most_bytes, self.most_files = path, most_bytes, most_files
        self._reading: Iterator[str | None] | None = None
        self._begun = self._next = time.monotonic()

    def step(self) -> str | None:
        """Read on for a few milliseconds, where it is time to; what is too much, or None."""
        now = time.monotonic()
        if self._reading is None:
            if now < self._next:
                return None
            self._reading, self._begun = self._read(), now
        for found in self._reading:
            if found is not None:
                return found
            if time.monotonic() > now + _SLICE_S:
                return None
        end = time.monotonic()
        self._reading = None
        self._next = end + max(_PAUSE_S, _PAUSE_SHARE * (end - now))
        return None

    def whole(self) -> str | None:
        """Read all of it, now."""
        return next((found for found in self._read() if found is not None), None)

    def _read(self) -> Iterator[str | None]:
        total = files = 0
        held: list[int] = []
        pending = [str(self.path)]
        try:
            while pending:
                folder = pending.pop()
                with contextlib.suppress(OSError):  # it may be gone by now
                    if len(folder) > _LONG_PATH:  # a path has a longest length, and a folder can be deeper
                        if len(held) == _MOST_FOLDERS:
                            yield f"left {_MOST_FOLDERS} folders too deep for a path"
                        held.append(os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
                        folder = f"/proc/self/fd/{held[-1]}"
                    with os.scandir(folder) as entries:
                        for entry in entries:
                            files += 1
                            with contextlib.suppress(OSError):
                                total += entry.stat(follow_symlinks=False).st_blocks * 512
                            if entry.is_dir(follow_symlinks=False):
                                pending.append(entry.path)
                            if total > self.most_bytes:
                                yield f"wrote more than {self.most_bytes} bytes to its folder"
                            if files > self.most_files:
                                yield f"wrote more than {self.most_files} files to its folder"
                            yield None
        finally:
            for fd in held:
                os.close(fd)
