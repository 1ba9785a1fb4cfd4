"""A fork server's process and the socket to it."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernelevolve import errors
from kernelevolve.workers.channel import Channel, ChannelClosedError
from kernelevolve.workers.environment import scrubbed

_START_S = 120
_ANSWER_S = 60

Wrap = Callable[[list[str]], list[str]]


class Connection:
    """A fork server, started by `command(python_command)`, and the questions put to it.

    Args:
        wrap: Turns the server's command line into one that runs it in a sandbox; None runs it as it is.
        environment: Variables changed for the server and so for all its workers.
        socket_path: Where the server is to connect, for a sandbox that takes no descriptors from its starter.
    """

    def __init__(self, wrap: Wrap | None = None, *, environment: dict[str, str] | None = None,
                 socket_path: Path | None = None) -> None:
        self.sandboxed = wrap is not None
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._ready = False
        self._channel: Channel | None = None
        self._listener: socket.socket | None = None
        wrap = wrap or (lambda command: command)
        variables = scrubbed() | (environment or {})
        command = [sys.executable, "-m", "kernelevolve.workers.server"]
        if socket_path is not None:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.bind(str(socket_path))
            self._listener.listen(1)
            self.process = _launch(wrap([*command, str(socket_path)]), (), variables)
            return
        mine, theirs = Channel.pair()
        self._channel = mine
        self.process = _launch(wrap([*command, str(theirs.fileno())]), (theirs.fileno(),), variables)
        theirs.close()

    def await_ready(self) -> None:
        """Wait until the server has imported everything. Raises WorkerError when it does not start."""
        self.ask({"command": "nothing"})

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
        if "error" in outcome[0]:
            raise errors.WorkerError(outcome[0]["error"])
        return outcome[0]

    def _exchange(self, request: dict[str, Any], fds: list[int]) -> Any:
        with self._lock:
            try:
                if self._channel is None:
                    self._accept()
                assert self._channel is not None
                if not self._ready:
                    self._channel.recv(timeout_s=_START_S)
                    self._ready = True
                self._channel.send(request, fds)
                return self._channel.recv(timeout_s=_ANSWER_S)[0]
            except (ChannelClosedError, TimeoutError, OSError) as error:
                raise errors.WorkerError(
                    f"the process server does not answer ({error}); expected it to run as pid {self.process.pid}. "
                    "Try `python -m kernelevolve doctor`."
                ) from error

    def _accept(self) -> None:
        assert self._listener is not None
        self._listener.settimeout(_START_S)
        sock, _ = self._listener.accept()
        self._listener.close()
        self._channel = Channel(sock)

    def close(self) -> None:
        """End the server, with every worker."""
        for end in (self._channel, self._listener):
            if end is not None:
                end.close()
        with contextlib.suppress(ChildProcessError):
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class _Launcher:
    """A thread that starts the servers and then lives on.

    The kernel ties "die with your parent" to the thread that started a process. A server that was started by a thread
    of the user's would die with that thread, in the middle of a search.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True, name="launcher").start()

    def _serve(self) -> None:
        while True:
            act, answers = self._work.get()
            try:
                answers.put(act())
            except OSError as error:
                answers.put(error)

    def run(self, act: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._work.put((act, answers))
        answer = answers.get()
        if isinstance(answer, OSError):
            raise errors.WorkerError(f"the process server could not be started: {answer}") from answer
        process: subprocess.Popen[bytes] = answer
        return process


_launcher: _Launcher | None = None
_launcher_lock = threading.Lock()


def _launch(command: Sequence[str], fds: Sequence[int], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    global _launcher
    with _launcher_lock:
        if _launcher is None or _launcher.owner != os.getpid():  # a fork has no thread but its own
            _launcher = _Launcher()
    return _launcher.run(lambda: subprocess.Popen(
        command, pass_fds=fds, env=environment, stdin=subprocess.DEVNULL, start_new_session=True))
