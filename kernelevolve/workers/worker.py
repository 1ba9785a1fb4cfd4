"""A worker seen by its client: talk to it, read what it printed, see what it uses, end it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections import deque

from kernelevolve import errors
from kernelevolve.workers import tree
from kernelevolve.workers.channel import Channel
from kernelevolve.workers.connection import Connection
from kernelevolve.workers.tree import Usage

LOG_BYTES = 32 * 1024
"""How much of a worker's output is kept, at the head and again at the tail."""


@dataclasses.dataclass(frozen=True)
class Exit:
    """How a worker ended."""

    code: int

    def __str__(self) -> str:
        if self.code < 0:
            return f"killed by signal {-self.code} ({signal.Signals(-self.code).name})"
        return f"exit code {self.code}"


class Worker:
    """A running child of a fork server. `channel` talks to it; `log()` is what it printed."""

    def __init__(self, server: Connection, number: int, channel: Channel, log_fd: int) -> None:
        self._server, self._number, self.channel = server, number, channel
        self.usage: Usage | None = None
        """Processes, threads and memory, as of the last `poll(usage=True)`; read anew at most five times a second."""
        self.left_behind = 0
        """Other processes than its own that were still alive when it was killed."""
        self._log_fd = log_fd
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total = 0
        self._exit: Exit | None = None
        self._pid: int | None = None if server.sandboxed else number
        self._drain = threading.Thread(target=self._drain_log, daemon=True, name=f"log-{number}")
        self._drain.start()

    @property
    def pid(self) -> int | None:
        """Its process id in this process's own /proc; None where a container's engine hides it, or it is gone."""
        if self._pid is None and self._server.sandboxed:
            self._pid = tree.seen_from_outside(self._server.process.pid, self._number)
        return self._pid

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

    def poll(self, *, usage: bool = False) -> Exit | None:
        """How it ended, or None while it runs. With `usage`, also look at what it uses."""
        if self._exit is None:
            answer = self._server.ask({"command": "poll", "pid": self._number, "usage": usage})
            if answer["usage"]:
                self.usage = Usage(*answer["usage"])
            self._ended(answer["code"])
        return self._exit

    def wait(self, timeout_s: float) -> Exit | None:
        """Wait for its end; None when it still runs after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (end := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return end

    def kill(self) -> None:
        """End it with all its descendants, now; safe to call twice. Closes the channel."""
        if self._log_fd < 0:
            return
        with contextlib.suppress(errors.WorkerError):
            answer = self._server.ask({"command": "kill", "pid": self._number})
            self.left_behind = answer["left"]
            self._ended(answer["code"])
            self.wait(2.0)
            self._server.ask({"command": "forget", "pid": self._number})
        self.channel.close()
        self._drain.join(timeout=1.0)
        with contextlib.suppress(OSError):
            os.close(self._log_fd)
        self._log_fd = -1

    def _ended(self, code: int | None) -> None:
        if code is not None and self._exit is None:
            self._exit = Exit(code)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
