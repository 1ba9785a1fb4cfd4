"""The fork server: a process that imports torch once and forks a fresh child per request.

It never runs an operator, starts a thread or touches a device, because a forked child would inherit the
state of those without their threads. It is the subreaper of its children: a daemon that leaves its process
group comes back here and is killed.

Started by `connection.py` as `python -m kernelevolve.workers.server FD`, or with the path of a socket to connect to.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from kernelevolve.workers import folders, harden, namespaces, tree
from kernelevolve.workers.channel import Channel

PRELOAD = ("torch", "torch.export", "torch._dynamo", "torch._inductor.compile_fx", "numpy")
_LOOK_S = 0.2
_LOOK_SHARE = 30
"""Usage is read at most this often, and never for more than one part in this many of the time."""
_KILL_WAIT_S = 1.0


class Child:
    """A worker that runs: its process here (the keeper's, behind walls), and how to learn how it ended."""

    def __init__(self, pid: int, report: int | None) -> None:
        self.pid, self.report = pid, report
        self.usage: list[int] | None = None
        self.next_look = 0.0

    @property
    def walled(self) -> bool:
        """Whether it has a PID namespace of its own."""
        return self.report is not None

    def exit_code(self, status: int) -> int:
        """What it ended with, given the wait status of `pid`."""
        if self.report is not None:
            told = os.read(self.report, 4)
            os.close(self.report)
            if len(told) == 4:
                status = int.from_bytes(told, "little")
        return os.waitstatus_to_exitcode(status)


class Server:
    """Children by PID, exits not yet fetched, and folders to remove when the client is gone."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.live: dict[int, Child] = {}
        self.exits: dict[int, int] = {}
        self.guarded: set[str] = set()
        self.stopping = False

    def serve(self) -> None:
        """Answer requests until the client closes its end or dies; then end and remove everything that is left."""
        wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the client's to handle
        self.channel.send({"ready": os.getpid()})
        while not self.stopping:
            ready, _, _ = select.select([self.channel.fileno(), wake_r], [], [])
            if wake_r in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_r, 4096)
                self._reap()
            if self.channel.fileno() not in ready:
                continue
            try:
                request, fds = self.channel.recv()
                answer = self._answer(request, fds)
                for fd in fds:
                    os.close(fd)
                self.channel.send(answer)
            except Exception:  # the client is gone, however it went
                self.stopping = True
        for pid in list(self.live):
            self._kill(pid)
        tree.end(lambda: tree.descendants(*tree.children(os.getpid())), self._reap)
        for path in self.guarded:
            folders.remove(Path(path))

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _answer(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        command = request["command"]
        if command == "fork":
            return self._fork(request, fds)
        if command == "poll":
            self._reap()
            pid = request["pid"]
            return {"code": self.exits.get(pid), "usage": self._usage(pid) if request.get("usage") else None}
        if command == "kill":
            return self._kill(request["pid"])
        if command == "forget":
            self.exits.pop(request["pid"], None)
        elif command == "guard":
            self.guarded.add(request["path"])
        elif command == "release":
            self.guarded.discard(request["path"])
        return {}

    def _fork(self, request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        def work() -> NoReturn:
            self.channel.sock.detach()  # its number will be another file's
            _be_worker(request, fds)

        walls = request.get("walls")
        try:
            if walls is not None:
                pid, report = namespaces.open_worker(namespaces.Walls.of(walls), work)
                self.live[pid] = Child(pid, report)
            else:
                pid = os.fork()
                if pid == 0:
                    work()
                self.live[pid] = Child(pid, None)
        except (OSError, namespaces.WallsError) as error:
            return {"error": f"no worker could be started: {error}"}
        return {"pid": pid}

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self.live.pop(pid, None)
            if child is not None:
                self.exits[pid] = child.exit_code(status)

    def _members(self, pid: int) -> list[tree.Entry]:
        """The processes of a worker, and those that came here because their own parent died: nobody may daemonise."""
        orphans = [p for p in tree.children(os.getpid()) if p not in self.live]
        return tree.descendants(pid, *orphans)

    def _usage(self, pid: int) -> list[int] | None:
        """Processes, threads and bytes of memory of a worker."""
        child, now = self.live.get(pid), time.monotonic()
        if child is None or now < child.next_look:
            return child.usage if child else None
        found = tree.Usage.of(self._others(child) if child.walled else self._members(pid))
        child.usage = [found.processes, found.threads, found.resident_bytes]
        end = time.monotonic()
        child.next_look = end + max(_LOOK_S, _LOOK_SHARE * (end - now))
        return child.usage

    def _others(self, keeper: Child) -> list[tree.Entry]:
        """All but the keeper, in its namespace."""
        return [e for e in tree.descendants(keeper.pid) if e.pid != keeper.pid]

    def _kill(self, pid: int) -> dict[str, Any]:
        """End a worker with all that it started: its exit code if it is gone by now, and how many others there were."""
        self._reap()
        child = self.live.get(pid)
        if child is not None and child.walled:
            alive = [e for e in self._others(child) if e.alive]
            os.kill(pid, signal.SIGKILL)
            self._await(pid)
            left = max(0, len(alive) - 1)
        else:
            left = len([e for e in self._members(pid) if e.alive and e.pid != pid])
            tree.end(lambda: self._members(pid), self._reap)
            self._await(pid)
        return {"code": self.exits.get(pid), "left": left}

    def _await(self, pid: int) -> None:
        deadline = time.monotonic() + _KILL_WAIT_S
        while pid in self.live and time.monotonic() < deadline:
            self._reap()
            if pid in self.live:
                time.sleep(0.0005)


def _be_worker(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """Become the worker. Never returns."""
    code = 70
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        talk, log = fds[0], fds[1]
        _keep_only(talk, log)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the worker's own, for its whole life
        sys.stdout = open(1, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False, errors="replace")  # noqa: SIM115
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        if request.get("foreign"):
            harden.set_dumpable(True)
            harden.first_to_go()
        for name, value in {"RLIMIT_CORE": 0, **request["limits"]}.items():
            kind = getattr(resource, name)
            _, hard = resource.getrlimit(kind)
            top = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (top, top))
        if request.get("foreign") and request.get("walls") is None:  # behind walls the keeper has given up all before
            harden.drop_privileges(keep=harden.FILE_CAPABILITIES)
        harden.die_with_parent()
        module, _, function = request["target"].partition(":")
        run: Callable[[Channel], None] = getattr(importlib.import_module(module), function)
        run(Channel(socket.socket(fileno=talk)))
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


def _keep_only(talk: int, log: int) -> None:
    """Close every descriptor but the worker's own: 0 reads nothing, 1 and 2 go to `log`, and the channel `talk`."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    namespaces.close_all_but(talk)


def main(where: str) -> None:
    """Serve the client at the descriptor `where`, or at the Unix socket of that path."""
    harden.die_with_parent(signal.SIGTERM)
    harden.adopt_orphans()
    harden.hide()
    for name in PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if where.isdecimal():
        sock = socket.socket(fileno=int(where))
    else:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(where)
    Server(Channel(sock)).serve()


if __name__ == "__main__":
    code = 1
    try:
        main(sys.argv[1])
        code = 0
    except BrokenPipeError:
        pass
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)  # taking torch apart in good order takes a second, and there is nothing to save
