"""An NVIDIA device inside processes: memory lent by IPC handle, a stopwatch of events, a barrier."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelevolve.errors import WorkerError
from kernelevolve.platforms.cuda_driver import HANDLE_BYTES, Driver, LibCuda
from kernelevolve.platforms.device import Device, Memory, Stopwatch

PAGE_BYTES = 2 * 2**20
"""What an IPC handle exposes comes in pages of this size; an allocation of whole pages shares none."""

# Captured before a candidate is imported, which may replace them. The base classes are C types, whose methods nobody
# can assign to; `torch.cuda.Event` is a Python class.
_clock = time.perf_counter_ns
_lazy_init = torch.cuda._lazy_init
_wait: Callable[[], None] | None = getattr(torch._C, "_cuda_synchronize", None)
_EVENT: Any = torch._C._CudaEventBase  # type: ignore[attr-defined]
_default_stream = torch.cuda.default_stream


class _Allocation:
    """Bytes of the device that end with the last tensor over them."""

    def __init__(self, driver: Driver, address: int, end: Callable[[int], None]) -> None:
        self.driver, self.address, self._end, self._owner = driver, address, end, os.getpid()

    def __del__(self) -> None:
        # After a fault every call fails, and in a fork none may be made: the process's end frees it all.
        if os.getpid() == self._owner:
            with contextlib.suppress(Exception):
                self.driver.synchronize()  # what still reads these bytes must be done
            with contextlib.suppress(Exception):
                self._end(self.address)


class CudaMemory(Memory):
    """An allocation of the driver's: this process's own, or opened from another's.

    `size` is that of the whole allocation, so that guard bands fill all that the other side can reach.
    """

    def __init__(self, allocation: _Allocation, size: int, *, own: bool) -> None:
        self.size, self._own = size, own
        self._allocation = allocation
        self.bytes = self.part(0, size)

    def part(self, start: int, size: int) -> torch.Tensor:
        """Of the allocation; keeps it alive."""
        if not size:
            return torch.empty(0, dtype=torch.uint8, device=self.bytes.device)
        allocation = self._allocation
        return allocation.driver.tensor(allocation.address + start, size, allocation)

    def ticket(self) -> tuple[dict[str, Any], list[int]]:
        """The size and the handle; no descriptors."""
        if not self._own:
            raise WorkerError("borrowed memory cannot be lent on; expected memory of this process's own")
        handle = self._allocation.driver.export(self._allocation.address)
        return {"size": self.size, "handle": handle.hex()}, []

    def close(self) -> None:
        """Nothing beside the bytes was taken."""


class CudaStopwatch(Stopwatch):
    """A pair of events on the default stream, and the host's clock.

    The host's span ends when every stream is idle, so work that was put on another stream is in it, and missing from
    the events' span.
    """

    def __init__(self) -> None:
        _lazy_init()
        self._stream = _default_stream()
        self._start, self._stop = _EVENT(enable_timing=True), _EVENT(enable_timing=True)
        self._begin = 0

    def start(self) -> None:
        """Read the host's clock, then record: the host's span holds the device's."""
        self._begin = _clock()
        _EVENT.record(self._start, self._stream)

    def stop(self) -> tuple[int, int]:
        """Record, wait for the whole device, read both."""
        assert _wait is not None
        _EVENT.record(self._stop, self._stream)
        _wait()
        host_ns = _clock() - self._begin
        return max(1, round(_EVENT.elapsed_time(self._start, self._stop) * 1e6)), host_ns


class CudaDevice(Device):
    """The current CUDA device of each process. Nothing is initialised before the first use.

    Args:
        driver: Makes the driver; another one than the real library in tests.
    """

    name = "cuda"

    def __init__(self, driver: Callable[[], Driver] = LibCuda) -> None:
        self._make = driver
        self._driver: tuple[int, Driver] | None = None

    @property
    def driver(self) -> Driver:
        """This process's; made on first use."""
        if self._driver is None or self._driver[0] != os.getpid():
            self._driver = os.getpid(), self._make()
        return self._driver[1]

    def lend(self, size: int) -> Memory:
        """Zeroed memory of whole pages. Raises WorkerError with CUDA's name for the error."""
        driver, whole = self.driver, -(-max(size, 1) // PAGE_BYTES) * PAGE_BYTES
        return CudaMemory(_Allocation(driver, driver.allocate(whole), driver.free), whole, own=True)

    def open(self, ticket: dict[str, Any], fds: list[int]) -> Memory:
        """Open an IPC handle. Raises WorkerError when the ticket is malformed or the driver refuses."""
        for fd in fds:
            os.close(fd)
        try:
            size, handle = int(ticket["size"]), bytes.fromhex(ticket["handle"])
            if size <= 0 or len(handle) != HANDLE_BYTES:
                raise ValueError(f"{size} bytes, a handle of {len(handle)} bytes")
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerError(f"not a ticket for CUDA memory: {error!r}; expected a size and {HANDLE_BYTES} bytes "
                              "in hexadecimal") from error
        driver = self.driver
        return CudaMemory(_Allocation(driver, driver.open(handle), driver.close), size, own=False)

    def synchronize(self) -> None:
        """Wait for every stream of this process."""
        if _wait is None:
            raise WorkerError("this PyTorch was built without CUDA; expected a build that has it")
        _lazy_init()
        _wait()

    def stopwatch(self) -> Stopwatch:
        """Events on the default stream."""
        return CudaStopwatch()
