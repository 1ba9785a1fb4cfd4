"""NVIDIA's driver library by ctypes: loading it, and its words for errors. Needs no PyTorch."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from kernelevolve.errors import WorkerError

LIBRARY = "libcuda.so.1"


@functools.cache
def load_library() -> Any:
    """The driver library, loaded but not initialised. Raises WorkerError."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise WorkerError(f"the NVIDIA driver's library does not load: {error}. Expected {LIBRARY} from the driver's "
                          "own package; see whether `nvidia-smi` works") from error


def error_name(library: Any, result: int) -> str:
    """Such as "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"."""
    found = []
    for name in ("cuGetErrorName", "cuGetErrorString"):
        text = ctypes.c_char_p()
        known = getattr(library, name)(ctypes.c_int(result), ctypes.byref(text)) == 0 and text.value
        found.append(text.value.decode(errors="replace") if known and text.value else f"error {result}")
    return f"{found[0]} ({found[1]})"
