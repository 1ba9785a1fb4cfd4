"""The few functions of NVIDIA's driver library that lending memory needs, called through ctypes.

Memory comes from the driver and not from PyTorch's allocator: an IPC handle exposes the whole allocation that an
address lies in, and in a pool that holds the neighbours' tensors as well.
"""

from __future__ import annotations

import contextlib
import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from kernelevolve.errors import WorkerError
from kernelevolve.platforms.cuda_library import error_name, load_library

HANDLE_BYTES = 64
_LAZY_ENABLE_PEER_ACCESS = 1

_as_tensor = torch.as_tensor  # captured before a candidate is imported, which may replace it


class Driver(ABC):
    """Allocations of the device and handles to them. Addresses are plain numbers; errors are WorkerErrors."""

    @abstractmethod
    def allocate(self, size: int) -> int:
        """Address of `size` fresh bytes, all zero: what was freed before must not be read by the next borrower."""

    @abstractmethod
    def free(self, address: int) -> None:
        """Give an allocation back."""

    @abstractmethod
    def export(self, address: int) -> bytes:
        """Handle by which another process opens an allocation."""

    @abstractmethod
    def open(self, handle: bytes) -> int:
        """Address, in this process, of an allocation that another process exported."""

    @abstractmethod
    def close(self, address: int) -> None:
        """End an `open`."""

    @abstractmethod
    def tensor(self, address: int, size: int, owner: object) -> torch.Tensor:
        """A uint8 tensor over `size` bytes at `address`, whose storage is no more than that and keeps `owner` alive."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device is idle; raises what an asynchronous fault raises."""


class _Handle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = [("reserved", ctypes.c_ubyte * HANDLE_BYTES)]


class LibCuda(Driver):
    """The real one, in the primary context, which is PyTorch's too.

    Creating it initialises CUDA in this process: never in a process that forks workers.
    """

    def __init__(self) -> None:
        torch.cuda.init()
        torch.zeros(1, device="cuda")  # the runtime makes the primary context, with the flags that PyTorch wants
        self._wait = torch._C._cuda_synchronize
        self._connect(load_library(), torch.cuda.current_device())

    def _connect(self, library: Any, ordinal: int) -> None:
        self._cuda = library
        self._context, device = ctypes.c_void_p(), ctypes.c_int()
        self._check("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def allocate(self, size: int) -> int:
        """cuMemAlloc, then a memset of all of it."""
        address = ctypes.c_uint64()
        with self._current():
            self._check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            self._check("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(size))
            self._check("cuCtxSynchronize")
        return int(address.value)

    def free(self, address: int) -> None:
        """By cuMemFree."""
        with self._current():
            self._check("cuMemFree_v2", ctypes.c_uint64(address))

    def export(self, address: int) -> bytes:
        """By cuIpcGetMemHandle."""
        handle = _Handle()
        with self._current():
            self._check("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
        return bytes(handle.reserved)

    def open(self, handle: bytes) -> int:
        """cuIpcOpenMemHandle; a second `open` of the same allocation gives the same address and is counted."""
        address = ctypes.c_uint64()
        with self._current():
            self._check("cuIpcOpenMemHandle_v2", ctypes.byref(address), _Handle.from_buffer_copy(handle),
                        ctypes.c_uint(_LAZY_ENABLE_PEER_ACCESS))
        return int(address.value)

    def close(self, address: int) -> None:
        """By cuIpcCloseMemHandle."""
        with self._current():
            self._check("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def tensor(self, address: int, size: int, owner: object) -> torch.Tensor:
        """By the CUDA array interface, which holds on to the object it was read from."""
        return _as_tensor(_Span(address, size, owner), device="cuda")

    def synchronize(self) -> None:
        """Every stream of this process. A device's fault comes as PyTorch's own exception, with CUDA's words."""
        self._wait()

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        """The primary context on this thread, whichever thread that is: memory may be freed by any."""
        self._check("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._check("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _check(self, name: str, *arguments: Any) -> None:
        """Call a function; its result is CUDA_SUCCESS or an error with CUDA's name for it."""
        result = getattr(self._cuda, name)(*arguments)
        if result != 0:
            raise WorkerError(f"{name} failed: {error_name(self._cuda, result)}")


class _Span:
    """Bytes of the device as the CUDA array interface describes them."""

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 2,
        }
