"""Messages between processes: length-prefixed JSON on a Unix socket, with file descriptors beside them.

JSON and not pickle, because one end may be a candidate: what it sends is parsed as data and never run.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

LIMIT_BYTES = 64 * 2**20
"""Largest message either side accepts."""
_MAX_FDS = 32


class ChannelClosedError(Exception):
    """The other end is gone, or sent something that is no message."""


class Channel:
    """One end of a socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

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
                data, new, _, _ = socket.recv_fds(self.sock, 8 - len(head), _MAX_FDS)
            except TimeoutError:
                raise
            except OSError as error:
                raise ChannelClosedError(str(error)) from error
            fds += new
            if not data:
                raise ChannelClosedError("the other process closed the channel")
            head += data
        size = int.from_bytes(head, "little")
        if size > LIMIT_BYTES:
            raise ChannelClosedError(f"a message of {size} bytes announced; the limit is {LIMIT_BYTES}")
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
        except ValueError as error:
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
