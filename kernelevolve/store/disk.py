"""Writing to disk so that it stays, and saying what to do when the disk will not."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kernelevolve import errors
from kernelevolve.testing import crash

NEEDED_BYTES = 4 * 2**20
"""Free space without which no search begins: a few hundred nodes with their texts."""


@contextlib.contextmanager
def explained(path: Path, doing: str) -> Iterator[None]:
    """Turn an OSError met while `doing` something with `path` into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        raise errors.StoreError(f"cannot {doing} {path}: {error.strerror or error}. {_advice(error)}") from error


def require_space(path: Path) -> None:
    """Raise StoreError when the disk of a folder is all but full: better before a search than in the middle of it."""
    with explained(path, "look at the disk of"):
        disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < NEEDED_BYTES:  # some network file systems tell nothing
        raise errors.StoreError(
            f"the disk of {path} is full: {free / 2**20:.1f} MB are free, and a search wants at least "
            f"{NEEDED_BYTES / 2**20:.0f} MB. Free some space, or choose another folder with workspace=…; "
            "every node acknowledged so far is safe in the journal."
        )


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "The disk is full: free some space, then go on with Study.resume; "
            "every node acknowledged so far is safe in the journal."
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return (
            "Expected a folder that this user may write to: choose one with workspace=… or the variable "
            "KERNELEVOLVE_WORKSPACE, or copy the workspace to such a folder."
        )
    if error.errno == errno.ENAMETOOLONG:
        return "The path is too long for this file system: put the workspace nearer to the root."
    if error.errno == errno.ENOTDIR:
        return "A part of the path is a file where a folder was expected: choose another workspace."
    return "Check the folder, or choose another workspace."


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file whole or not at all; on the disk (fsync) on return when `durable`."""
    with explained(path, "write"):
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent.parent)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            crash.step("store.written")
            Path(name).replace(path)
            crash.step("store.renamed")
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make the folder's own entries durable (a new file is lost after a power cut without it)."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class FileLock:
    """An exclusive lock between processes on a file. The kernel lets go of it when its holder dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self, timeout_s: float) -> bool:
        """Try until the deadline; says whether it was got. The holder's process id stands in the file."""
        with explained(self.path, "lock"):
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    return False
                time.sleep(random.uniform(0.01, 0.05))  # noqa: S311 - jitter, not a secret
                continue
            with contextlib.suppress(OSError):  # a full disk must not keep anybody from the lock
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
            self._fd = fd
            return True

    def holder(self) -> int | None:
        """Process id of the last holder, as it wrote it."""
        try:
            return int(self.path.read_text())
        except (OSError, ValueError):
            return None

    def release(self) -> None:
        """Let go; safe to call twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.release()
