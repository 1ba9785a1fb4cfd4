"""The client side of the fork servers: `start` a worker and talk to it, or `call` a function in one."""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelevolve import errors
from kernelevolve.testing import crash
from kernelevolve.workers.channel import Channel, ChannelClosedError
from kernelevolve.workers.connection import Connection
from kernelevolve.workers.worker import Worker

_server: Connection | None = None
_server_lock = threading.Lock()


def _get_server() -> Connection:
    global _server
    with _server_lock:
        # A fork of the user's process must not share the socket; a dead server is replaced.
        if _server is None or _server.owner != os.getpid() or _server.process.poll() is not None:
            if _server is not None and _server.owner == os.getpid():
                _server.close()
            _server = Connection()
        return _server


@atexit.register
def shutdown() -> None:
    """End the fork server and every worker. The next `start` begins a new one."""
    global _server
    with _server_lock:
        if _server is not None and _server.owner == os.getpid():
            _server.close()
        _server = None


def guard(folder: Path) -> None:
    """Have `folder` removed when this process dies before it has called `release`, killed or not."""
    _get_server().ask({"command": "guard", "path": str(folder.absolute())})


def release(folder: Path) -> None:
    """Take back `guard`."""
    with contextlib.suppress(errors.WorkerError):
        _get_server().ask({"command": "release", "path": str(folder.absolute())})


def start(
    target: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    limits: Mapping[str, int] | None = None,
    foreign: bool = False,
    walls: Mapping[str, Any] | None = None,
    server: Connection | None = None,
) -> Worker:
    """Start `target` ("package.module:function") in a fresh process; it is called with its end of a `Channel`.

    Args:
        target: Function to run; its return ends the process with exit code 0.
        env: Variables added to the process's environment.
        cwd: Its working directory; a temporary one of the system by default.
        limits: Resource limits by name, such as {"RLIMIT_AS": bytes}.
        foreign: It runs code of others: it gives up what privileges it has before.
        walls: Fields of `namespaces.Walls`, for namespaces of its own; for servers in a sandbox.
        server: The server to fork from; the one of this process by default.
    """
    server = server or _get_server()
    mine, theirs = Channel.pair()
    log_r, log_w = os.pipe()
    request = {
        "command": "fork",
        "target": target,
        "env": dict(env or {}),
        "cwd": str(cwd or tempfile.gettempdir()),
        "limits": dict(limits or {}),
        "foreign": foreign,
        "walls": dict(walls) if walls is not None else None,
    }
    crash.step("worker.start")
    try:
        pid = server.ask(request, [theirs.fileno(), log_w])["pid"]
        crash.step("worker.started")
    except errors.WorkerError:
        mine.close()
        os.close(log_r)
        raise
    finally:
        theirs.close()
        os.close(log_w)
    return Worker(server, pid, mine, log_r)


def call(
    target: str,
    payload: Any,
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Any:
    """Run `target(payload)` in a fresh process and return its JSON answer.

    An error of `kernelevolve.errors` raised over there is raised here. Any other end raises WorkerError with
    what the process printed, and an answer that takes longer than `timeout_s` raises it with the limit.
    """
    with start("kernelevolve.workers.pool:_serve_call", env=env, cwd=cwd, limits=limits) as worker:
        try:
            worker.channel.send({"target": target, "payload": payload})
            answer, fds = worker.channel.recv(timeout_s)
            crash.step("worker.answered")
        except TimeoutError as error:
            raise errors.WorkerError(f"{target} gave no answer within {timeout_s:g} s\n{worker.log()}") from error
        except ChannelClosedError as error:
            end = worker.wait(2.0)
            raise errors.WorkerError(f"{target} died: {end or error}\n{worker.log()}") from error
        for fd in fds:
            os.close(fd)
        if "error" in answer:
            kind = getattr(errors, answer["error"])
            raise kind.__new__(kind, answer["message"])  # by-passes __init__: the message is already whole
        return answer["value"]


def _serve_call(channel: Channel) -> None:
    """The other side of `call`."""
    import importlib

    request, _ = channel.recv()
    module, _, function = request["target"].partition(":")
    try:
        value = getattr(importlib.import_module(module), function)(request["payload"])
        channel.send({"value": value})
    except errors.KernelEvolveError as error:
        channel.send({"error": type(error).__name__, "message": str(error)})


def scratch(prefix: str) -> Path:
    """A private temporary folder; the caller removes it, and the fork server does when this process is killed."""
    path = Path(tempfile.mkdtemp(prefix=f"kernelevolve-{prefix}-"))
    guard(path)
    return path
