"""The fork server: a process that imports torch once and forks a fresh child per request.

It never runs an operator, starts a thread or touches a device, because a forked child would inherit the
state of those without their threads. It is the subreaper of its children: a daemon that leaves its process
group comes back here and is killed.

Started by `pool.py` as `python -m kernelevolve.workers.server FD`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from kernelevolve.workers.channel import Channel

PRELOAD = ("torch", "torch.export", "torch._dynamo", "torch._inductor.compile_fx", "triton", "numpy")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(fd: int) -> None:
    """Serve until the client closes its end; then kill everything that is left."""
    for name in PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    channel = Channel(socket.socket(fileno=fd))
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to handle
    exits: dict[int, int] = {}
    live: set[int] = set()
    channel.send({"ready": os.getpid()})
    while True:
        ready, _, _ = select.select([channel.fileno(), wake_r], [], [])
        if wake_r in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_r, 4096)
            _reap(live, exits)
        if channel.fileno() not in ready:
            continue
        try:
            request, fds = channel.recv()
        except Exception:  # the client is gone, however it went
            _kill_all(live)
            return
        command = request["command"]
        if command == "fork":
            pid = os.fork()
            if pid == 0:
                channel.close()
                os.close(wake_r)
                os.close(wake_w)
                _child(request, fds, libc)
            live.add(pid)
            for f in fds:
                os.close(f)
            channel.send({"pid": pid})
        elif command == "poll":
            _reap(live, exits)
            channel.send({"code": exits.get(request["pid"])})
        elif command == "kill":
            _kill_tree(request["pid"])
            _reap(live, exits)
            _kill_orphans(live)
            channel.send({"code": exits.get(request["pid"])})
        elif command == "forget":
            exits.pop(request["pid"], None)
            channel.send({})


def _child(request: dict[str, Any], fds: list[int], libc: ctypes.CDLL) -> NoReturn:
    """Become the worker. Never returns."""
    code = 70
    try:
        os.setsid()
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        talk, log = fds[0], fds[1]
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the worker's own, for its whole life
        sys.stdout = open(1, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        for name, value in {"RLIMIT_CORE": 0, **request["limits"]}.items():
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            top = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (top, top))
        module, _, function = request["target"].partition(":")
        getattr(importlib.import_module(module), function)(Channel(socket.socket(fileno=talk)))
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _reap(live: set[int], exits: dict[int, int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in live:
            live.discard(pid)
            exits[pid] = os.waitstatus_to_exitcode(status)


def _children() -> dict[int, list[int]]:
    """Every process by its parent, from /proc."""
    table: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The command name may hold spaces and brackets: the fields start after the last bracket.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                table.setdefault(parent, []).append(int(entry.name))
    return table


def _kill_tree(pid: int) -> None:
    """Kill a worker with all its descendants, twice, because one may fork between the look and the blow."""
    for _ in range(2):
        table = _children()
        queue, seen = [pid], []
        while queue:
            p = queue.pop()
            seen.append(p)
            queue += table.get(p, [])
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        for p in seen:
            with contextlib.suppress(OSError):
                os.kill(p, signal.SIGKILL)


def _kill_orphans(live: set[int]) -> None:
    """Kill what was handed to this process because its own parent died: nobody may daemonise."""
    for pid in _children().get(os.getpid(), []):
        if pid not in live:
            _kill_tree(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _kill_all(live: set[int]) -> None:
    for pid in list(live):
        _kill_tree(pid)
    _kill_orphans(set())


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except (BrokenPipeError, json.JSONDecodeError):
        sys.exit(1)
