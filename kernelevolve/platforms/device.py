"""The part of a platform that works inside processes: memory lent between them, a stopwatch, a barrier.

The judge lends memory and a runner opens it; both import this, and nothing here knows what a candidate is.
"""

from __future__ import annotations

import mmap
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

ALIGN = 64
"""Alignment of every storage in lent memory, the same as torch's own allocator."""
GUARD_BYTES = 4096
"""Width of the band before, between and behind lent storages; one page, so that a storage starts as aligned as it would
without."""
GUARD = 0xA5
"""What the bands hold."""

_clock = time.perf_counter_ns  # captured before a candidate is imported, which may replace it


class Memory(ABC):
    """Bytes that two processes see. Storages lie in it as `inside.tensors.layout` placed them."""

    size: int
    bytes: torch.Tensor
    """All of it; uint8, on the device."""

    @abstractmethod
    def ticket(self) -> tuple[dict[str, Any], list[int]]:
        """What another process needs to open it: plain JSON values, and descriptors to send beside them."""

    @abstractmethod
    def close(self) -> None:
        """Give up what the ticket needs; the bytes live as long as tensors over them."""

    @abstractmethod
    def part(self, start: int, size: int) -> torch.Tensor:
        """A span of the bytes as a uint8 tensor whose storage is no more than that span."""

    def write(self, leaves: Sequence[torch.Tensor], specs: Sequence[dict[str, Any]]) -> None:
        """Copy the leaves' whole storages in, as `layout` placed them."""
        for leaf, spec in zip(leaves, specs, strict=True):
            if spec["bytes"]:
                self.bytes[spec["start"] : spec["start"] + spec["bytes"]].copy_(raw(leaf))

    def tensors(self, specs: Sequence[dict[str, Any]]) -> list[torch.Tensor]:
        """Tensors over this memory, without a copy. Equal specs give the same tensor, as one argument passed twice."""
        parts: dict[tuple[int, str], torch.Tensor] = {}
        made: dict[str, torch.Tensor] = {}
        found = []
        for spec in specs:
            key, place = str(spec), (spec["start"], spec["dtype"])
            if key not in made or not spec["bytes"]:
                if place not in parts or not spec["bytes"]:
                    dtype = getattr(torch, spec["dtype"])
                    whole = spec["bytes"] // dtype.itemsize * dtype.itemsize
                    parts[place] = self.part(spec["start"], whole).view(dtype)
                made[key] = parts[place].as_strided(spec["shape"], spec["stride"], spec["offset"])
            found.append(made[key])
        return found

    def guard(self, specs: Sequence[dict[str, Any]]) -> None:
        """Fill every byte that belongs to no storage with the guard's value."""
        for low, high in _gaps(specs, self.size):
            self.bytes[low:high].fill_(GUARD)

    def breached(self, specs: Sequence[dict[str, Any]]) -> int | None:
        """The first byte outside every storage that no longer holds the guard's value; None when all do."""
        for low, high in _gaps(specs, self.size):
            wrong = (self.bytes[low:high] != GUARD).nonzero()
            if len(wrong):
                return low + int(wrong[0])
        return None


class Stopwatch(ABC):
    """Measures one span on the device, and the same span on the host."""

    @abstractmethod
    def start(self) -> None:
        """Begin a span; the device is idle."""

    @abstractmethod
    def stop(self) -> tuple[int, int]:
        """End it: nanoseconds on the device's own clock, and on the host's until the whole device is idle again."""


class Device(ABC):
    """Where tensors live, as torch names it, with what differs between devices."""

    name: str
    """torch's name of the device type."""

    @abstractmethod
    def lend(self, size: int) -> Memory:
        """Fresh memory of `size` bytes that no other allocation shares a page with."""

    @abstractmethod
    def open(self, ticket: dict[str, Any], fds: list[int]) -> Memory:
        """Memory that another process lent. The descriptors are closed."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the whole device is idle: every stream. Raises what an asynchronous fault raises."""

    @abstractmethod
    def stopwatch(self) -> Stopwatch:
        """A stopwatch for this process."""


class HostMemory(Memory):
    """A memfd, mapped."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self._map = mmap.mmap(fd, size)
        self.bytes = self.part(0, size)

    def part(self, start: int, size: int) -> torch.Tensor:
        """Of the mapping."""
        if not size:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._map, dtype=torch.uint8, count=size, offset=start)

    def ticket(self) -> tuple[dict[str, Any], list[int]]:
        """The size, and the descriptor."""
        return {"size": self.size}, [self.fd]

    def close(self) -> None:
        """Close the descriptor; the mapping lives as long as its tensors."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class HostStopwatch(Stopwatch):
    """One clock is both."""

    def start(self) -> None:
        """Read the clock."""
        self._begin = _clock()

    def stop(self) -> tuple[int, int]:
        """The same span twice."""
        span = _clock() - self._begin
        return span, span


class Host(Device):
    """The processor."""

    name = "cpu"

    def lend(self, size: int) -> Memory:
        """Zeroed memory."""
        fd = os.memfd_create("kernelevolve", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        return HostMemory(fd, size)

    def open(self, ticket: dict[str, Any], fds: list[int]) -> Memory:
        """Map the first descriptor."""
        memory = HostMemory(fds[0], int(ticket["size"]))
        for fd in fds:
            os.close(fd)
        memory.fd = -1
        return memory

    def synchronize(self) -> None:
        """Nothing runs behind a processor's back."""

    def stopwatch(self) -> Stopwatch:
        """perf_counter_ns."""
        return HostStopwatch()


def raw(leaf: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's whole storage; uint8, no copy."""
    return torch.empty(0, dtype=torch.uint8, device=leaf.device).set_(
        leaf.untyped_storage())  # type: ignore[call-overload]


def _gaps(specs: Sequence[dict[str, Any]], size: int) -> list[tuple[int, int]]:
    gaps, end = [], 0
    for low, length in sorted({(s["start"], s["bytes"]) for s in specs if s["bytes"]}):
        if low > end:
            gaps.append((end, low))
        end = max(end, low + length)
    if size > end:
        gaps.append((end, size))
    return gaps
