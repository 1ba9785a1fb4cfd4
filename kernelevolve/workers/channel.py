"""Messages between processes: length-prefixed JSON on a Unix socket, with file descriptors beside them.

JSON and not pickle, because one end may be a candidate: what it sends is parsed as data and never run.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

LIMIT_BYTES = 64 * 2**20
"""Largest message either side accepts."""
UNTRUSTED_BYTES = 4 * 2**20
"""The same where a candidate is at the other end."""
_MAX_FDS = 32


class ChannelClosedError(Exception):
    """The other end is gone, or sent something that is no message."""


class Channel:
    """One end of a socket pair.

    Args:
        sock: The socket.
        limit_bytes: Largest message that is accepted.
        descriptors: How many file descriptors are accepted with a message; any beyond are refused with it.
    """

    def __init__(self, sock: socket.socket, *, limit_bytes: int = LIMIT_BYTES, descriptors: int = _MAX_FDS) -> None:
        self.sock, self.limit_bytes, self.descriptors = sock, limit_bytes, descriptors

    def distrust(self) -> None:
        """From here on the other end is a candidate: small messages, and no descriptors."""
        self.limit_bytes, self.descriptors = UNTRUSTED_BYTES, 0

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two connected ends."""
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(a), cls(b)

    def send(self, message: Any, fds: list[int] | None = None, timeout_s: float | None = None) -> None:
        """Send one JSON value and, beside it, open file descriptors (the caller keeps its own copies)."""
        body = json.dumps(message, separators=(",", ":")).encode()
        try:
            self.sock.settimeout(timeout_s)
            socket.send_fds(self.sock, [len(body).to_bytes(8, "little")], fds or [])
            self.sock.sendall(body)
        except TimeoutError:
            raise
        except OSError as error:
            raise ChannelClosedError(f"the other process is gone ({error})") from error

    def recv(self, timeout_s: float | None = None) -> tuple[Any, list[int]]:
        """Receive one message and its file descriptors (now this process's own, to be closed by the caller).

        Raises TimeoutError after `timeout_s`, ChannelClosedError at the end of the stream or on nonsense.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        fds: list[int] = []
        head = b""
        while len(head) < 8:
            self._arm(deadline)
            try:
                data, new, flags, _ = socket.recv_fds(self.sock, 8 - len(head), self.descriptors)
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            fds += new
            if flags & socket.MSG_CTRUNC or len(fds) > self.descriptors:
                _close(fds)
                raise ChannelClosedError(f"more file descriptors than the {self.descriptors} that are accepted")
            if not data:
                raise ChannelClosedError("the other process closed the channel")
            head += data
        size = int.from_bytes(head, "little")
        if size > self.limit_bytes:
            _close(fds)
            raise ChannelClosedError(f"a message of {size} bytes announced; the limit is {self.limit_bytes}")
        body = bytearray()
        while len(body) < size:
            self._arm(deadline)
            try:
                data = self.sock.recv(min(1 << 20, size - len(body)))
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            if not data:
                raise ChannelClosedError("the other process died in the middle of a message")
            body += data
        try:
            return json.loads(body), fds
        except (ValueError, RecursionError) as error:
            _close(fds)
            raise ChannelClosedError(f"not JSON: {error}") from error

    def _arm(self, deadline: float | None) -> None:
        if deadline is None:
            self.sock.settimeout(None)
            return
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer within the limit")
        self.sock.settimeout(left)

    def fileno(self) -> int:
        """Descriptor of this end."""
        return self.sock.fileno()

    def close(self) -> None:
        """Close this end."""
        self.sock.close()


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
