"""Namespaces of its own for one candidate, made by the forked child itself: it sees itself and its folder.

The fork server already lives in a sandbox (see `evaluation/isolation/bubblewrap.py`): a read-only system, no network,
no home. Inside it, each candidate gets user, PID, mount, IPC, UTS and network namespaces:

    server
      opener   leaves the server's namespaces, forks the keeper, ends at once
      keeper   process 1 of the new PID namespace: mounts, gives up every privilege, forks the worker, waits for it
      worker   runs foreign code

Process 1 cannot be killed from inside, and when it ends, the kernel ends every process of its namespace before anybody
is told: there is nothing to search for and nothing that escapes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from kernelevolve.workers import harden

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_BYTES_PER_FILE = 4096


@dataclasses.dataclass(frozen=True)
class Walls:
    """What one candidate may see and fill. Paths are those of the sandbox that the server lives in."""

    hidden: tuple[str, ...]
    """Folders that empty ones take the place of: the one with every candidate's own, above all."""
    folder: str
    """The candidate's own: it is put back, and it is all that it may write on a disk."""
    kept: tuple[str, ...] = ()
    """Read-only paths below /tmp or /dev/shm, which get covered."""
    memory_files_bytes: int = 2**30
    """Size of /tmp and of /dev/shm, each; both are memory."""

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Walls:
        """From what was sent as JSON."""
        return cls(tuple(fields["hidden"]), fields["folder"], tuple(fields["kept"]), fields["memory_files_bytes"])


class WallsError(Exception):
    """The namespaces could not be made; the message says at which step."""


def open_worker(walls: Walls, work: Callable[[], NoReturn]) -> tuple[int, int]:
    """Fork `work` into namespaces of its own: the keeper's PID (as seen here), and the descriptor of its report.

    The report is the worker's wait status, 4 bytes, written as the keeper ends. Raises WallsError.
    """
    news_r, news_w = os.pipe()
    report_r, report_w = os.pipe()
    opener = os.fork()
    if opener == 0:
        _be_opener(walls, work, news_w, report_w)
    os.close(news_w)
    os.close(report_w)
    with os.fdopen(news_r) as lines:
        news: dict[str, Any] = {}
        for line in lines:
            news |= json.loads(line)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(opener, 0)
    if "ready" not in news:
        os.close(report_r)
        if "keeper" in news:
            with contextlib.suppress(OSError):
                os.kill(news["keeper"], signal.SIGKILL)
                os.waitpid(news["keeper"], 0)
        raise WallsError(news.get("failed", "the process that makes the namespaces died"))
    return news["keeper"], report_r


def _be_opener(walls: Walls, work: Callable[[], NoReturn], news: int, report: int) -> NoReturn:
    try:
        harden.set_dumpable(True)  # or else an ordinary user may not write its own maps
        harden.first_to_go()
        user, group = os.getuid(), os.getgid()
        flags = _NEWUSER | _NEWPID | _NEWNS | _NEWIPC | _NEWUTS | _NEWNET
        harden.check(harden.libc.unshare(flags), "a user namespace")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
        keeper = os.fork()
        if keeper == 0:
            _be_keeper(walls, work, news, report)
        _tell(news, keeper=keeper)
    except BaseException as error:
        _tell(news, failed=str(error))
    os._exit(0)


def _be_keeper(walls: Walls, work: Callable[[], NoReturn], news: int, report: int) -> NoReturn:
    """Process 1. It shares a user with foreign code, so it has no privilege left and shows its memory to nobody."""
    code = 70
    try:
        _mount_all(walls)
        harden.drop_privileges()
        worker = os.fork()
        if worker == 0:
            os.close(news)
            os.close(report)
            work()
        harden.set_dumpable(False)
        signal.set_wakeup_fd(-1)
        for number in {signal.SIGCHLD, signal.SIGINT, signal.SIGTERM}:
            signal.signal(number, signal.SIG_DFL)  # and the kernel drops what process 1 has no handler for
        _tell(news, ready=True)
        _keep_only(report)
        while True:
            pid, status = os.wait()
            if pid == worker:
                os.write(report, status.to_bytes(4, "little"))
                code = 0
                break
    except BaseException as error:
        with contextlib.suppress(OSError):
            _tell(news, failed=str(error))
    os._exit(code)


def _mount_all(walls: Walls) -> None:
    folders = [(path, os.open(path, os.O_PATH)) for path in (walls.folder, *walls.kept)]
    _mount(None, "/", None, _REC | _PRIVATE)
    flags = _NOSUID | _NODEV | _NOEXEC
    try:
        _mount("proc", "/proc", "proc", flags, "hidepid=ptraceable")  # hides process 1; kernels before 5.8 lack it
    except OSError:
        _mount("proc", "/proc", "proc", flags)
    # Room for no further user namespace: in one, foreign code would have privileges again, over fewer things.
    Path("/proc/sys/user/max_user_namespaces").write_text("0")
    # A root user may write kernel settings by the mere ownership of their files, privileges or not.
    _mount(None, "/proc", None, _BIND | _REMOUNT | _RDONLY | flags)
    size = f"size={walls.memory_files_bytes},nr_inodes={max(1024, walls.memory_files_bytes // _BYTES_PER_FILE)}"
    for path in ("/tmp", "/dev/shm"):  # noqa: S108 - these are what gets replaced
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, f"{size},mode=1777")
    emptied = [path for path in walls.hidden if Path(path).is_dir()]  # below /tmp, they are covered already
    for path in emptied:
        _mount("tmpfs", path, "tmpfs", _NOSUID | _NODEV, "size=64k,mode=755")
    for path, fd in folders:
        _put_back(Path(path), fd)
    for path in emptied:
        _mount(None, path, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)


def _put_back(path: Path, fd: int) -> None:
    """Bind what `fd` opened at `path` again, where that is covered now."""
    source = os.fstat(fd)
    if not path.exists() or not os.path.samestat(path.stat(), source):
        if stat.S_ISDIR(source.st_mode):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        _mount(f"/proc/self/fd/{fd}", str(path), None, _BIND | _REC)
    os.close(fd)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    answer = harden.libc.mount(texts[0], texts[1], texts[2], harden.ulong(flags), texts[3])
    harden.check(answer, f"mount {kind or source or 'again'} at {target}")


def _tell(fd: int, **news: Any) -> None:
    os.write(fd, json.dumps(news).encode() + b"\n")


def close_all_but(keep: int) -> None:
    """Close every descriptor from 3 on except one."""
    for path in list(Path("/proc/self/fd").iterdir()):
        number = int(path.name)
        if number > 2 and number != keep:
            with contextlib.suppress(OSError):  # the one that listed them is closed already
                os.close(number)


def _keep_only(keep: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    close_all_but(keep)
