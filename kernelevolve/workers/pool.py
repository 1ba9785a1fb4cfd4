"""The client side of the fork server: `start` a worker and talk to it, or `call` a function in one."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelevolve import errors
from kernelevolve.testing import crash
from kernelevolve.workers.channel import Channel, ChannelClosedError

LOG_BYTES = 32 * 1024
"""How much of a worker's output is kept, at the head and again at the tail."""

_SERVER_ENVIRONMENT = {
    # Without these, a call that allocates its output pays page faults that one with a kept buffer does not.
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    # By default a thread that waits at a barrier spins for 5 ms. Where another program wants the core, that turned a
    # 0.6 ms operator into 30 ms; with 2000 turns it takes 1.5 ms there, and the same 0.6 ms on an idle machine.
    "GOMP_SPINCOUNT": "2000",
    # One pool of threads, torch's; numpy's would only be inherited half-dead by the forked children.
    "OPENBLAS_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # PyTorch's question whether there is a device would initialise CUDA in the server, and spoil it for every fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


@dataclasses.dataclass(frozen=True)
class Exit:
    """How a worker ended."""

    code: int

    def __str__(self) -> str:
        if self.code < 0:
            return f"killed by signal {-self.code} ({signal.Signals(-self.code).name})"
        return f"exit code {self.code}"


class Worker:
    """A running child of the fork server. `channel` talks to it; `log()` is what it printed."""

    def __init__(self, server: _Server, pid: int, channel: Channel, log_fd: int) -> None:
        self._server, self.pid, self.channel = server, pid, channel
        self._log_fd = log_fd
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total = 0
        self._exit: Exit | None = None
        self._drain = threading.Thread(target=self._drain_log, daemon=True, name=f"log-{pid}")
        self._drain.start()

    def _drain_log(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._log_fd, 65536):
                self._total += len(data)
                room = LOG_BYTES - len(self._head)
                if room > 0:
                    self._head += data[:room]
                    data = data[room:]
                if data:
                    self._tail.append(data)
                    self._tail_bytes += len(data)
                    while self._tail_bytes - len(self._tail[0]) > LOG_BYTES:
                        self._tail_bytes -= len(self._tail.popleft())

    def log(self) -> str:
        """What the worker printed: the first and last 32 kB, with a mark where something was left out."""
        self._drain.join(timeout=0.2)
        tail = b"".join(self._tail)[-LOG_BYTES:]
        left_out = self._total - len(self._head) - len(tail)
        text = self._head.decode(errors="replace")
        if left_out > 0:
            text += f"\n… {left_out} bytes left out …\n"
        return text + tail.decode(errors="replace")

    @property
    def log_bytes(self) -> int:
        """How much it has printed so far."""
        return self._total

    def poll(self) -> Exit | None:
        """How it ended, or None while it runs."""
        if self._exit is None:
            code = self._server.ask({"command": "poll", "pid": self.pid})["code"]
            if code is not None:
                self._exit = Exit(code)
        return self._exit

    def wait(self, timeout_s: float) -> Exit | None:
        """Wait for its end; None when it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (end := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return end

    def kill(self) -> None:
        """End it with all its descendants, now; safe to call twice. Closes the channel."""
        with contextlib.suppress(errors.WorkerError):
            self._server.ask({"command": "kill", "pid": self.pid})
            self.wait(2.0)
            self._server.ask({"command": "forget", "pid": self.pid})
        self.channel.close()
        self._drain.join(timeout=1.0)
        with contextlib.suppress(OSError):
            os.close(self._log_fd)
        self._log_fd = -1

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class _Server:
    """The fork server's process and the socket to it."""

    def __init__(self) -> None:
        mine, theirs = Channel.pair()
        os.set_inheritable(theirs.fileno(), True)
        environment = {**os.environ, **_SERVER_ENVIRONMENT}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kernelevolve.workers.server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.owner = os.getpid()
        self._channel = mine
        self._lock = threading.Lock()
        self._ready = False

    def ask(self, request: dict[str, Any], fds: list[int] | None = None) -> Any:
        """Send a request and await its answer, in a thread of its own.

        Ctrl-C is raised in the main thread only: it ends the waiting there, never an exchange half way, after which
        every answer would be taken for another request's.
        """
        copies = [os.dup(fd) for fd in fds or []]
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(self._exchange(request, copies))
            except errors.WorkerError as error:
                outcome.append(error)
            finally:
                for fd in copies:
                    os.close(fd)

        thread = threading.Thread(target=run, daemon=True, name="ask")
        thread.start()
        thread.join()
        if isinstance(outcome[0], errors.WorkerError):
            raise outcome[0]
        return outcome[0]

    def _exchange(self, request: dict[str, Any], fds: list[int]) -> Any:
        with self._lock:
            try:
                if not self._ready:
                    self._channel.recv(timeout_s=120)
                    self._ready = True
                self._channel.send(request, fds)
                return self._channel.recv(timeout_s=60)[0]
            except (ChannelClosedError, TimeoutError) as error:
                raise errors.WorkerError(
                    f"the process server does not answer ({error}); expected it to run as pid {self.process.pid}. "
                    "Try `python -m kernelevolve doctor`."
                ) from error

    def close(self) -> None:
        self._channel.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


_server: _Server | None = None
_server_lock = threading.Lock()


def _get_server() -> _Server:
    global _server
    with _server_lock:
        # A fork of the user's process must not share the socket; a dead server is replaced.
        if _server is None or _server.owner != os.getpid() or _server.process.poll() is not None:
            if _server is not None and _server.owner == os.getpid():
                _server.close()
            _server = _Server()
        return _server


@atexit.register
def shutdown() -> None:
    """End the fork server and every worker. The next `start` begins a new one."""
    global _server
    with _server_lock:
        if _server is not None and _server.owner == os.getpid():
            _server.close()
        _server = None


def start(
    target: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    limits: Mapping[str, int] | None = None,
) -> Worker:
    """Start `target` ("package.module:function") in a fresh process; it is called with its end of a `Channel`.

    Args:
        target: Function to run; its return ends the process with exit code 0.
        env: Variables added to the process's environment.
        cwd: Its working directory; a temporary one of the system by default.
        limits: Resource limits by name, such as {"RLIMIT_AS": bytes}.
    """
    server = _get_server()
    mine, theirs = Channel.pair()
    log_r, log_w = os.pipe()
    request = {
        "command": "fork",
        "target": target,
        "env": dict(env or {}),
        "cwd": str(cwd or tempfile.gettempdir()),
        "limits": dict(limits or {}),
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
    """A private temporary folder; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix=f"kernelevolve-{prefix}-"))
