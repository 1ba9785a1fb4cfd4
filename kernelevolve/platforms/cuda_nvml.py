"""The state of an NVIDIA device by NVML, through ctypes: under a millisecond, where starting nvidia-smi takes many.

NVML watches devices; it makes no CUDA context, so any process may ask it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any

_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_CORE_TEMPERATURE = 0


class _Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def read(uuid: str) -> dict[str, Any]:
    """Keys as `cuda_facts.conditions` has them, and "clock_mask", the bits of the clock's reasons.

    What this device does not tell is left out; empty when NVML is not there.
    """
    library = _library()
    if library is None:
        return {}
    device = ctypes.c_void_p()
    if library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
        return {}
    found: dict[str, Any] = {}

    def number(key: str, function: str, *arguments: Any, scale: float = 1.0,
               kind: Any = ctypes.c_uint) -> None:
        value = kind()
        with contextlib.suppress(AttributeError):  # a driver older than the function
            if getattr(library, function)(device, *arguments, ctypes.byref(value)) == 0:
                found[key] = float(value.value) * scale

    number("clock_mhz", "nvmlDeviceGetClockInfo", ctypes.c_int(_SM_CLOCK))
    number("memory_clock_mhz", "nvmlDeviceGetClockInfo", ctypes.c_int(_MEMORY_CLOCK))
    number("clock_max_mhz", "nvmlDeviceGetMaxClockInfo", ctypes.c_int(_SM_CLOCK))
    number("temperature_c", "nvmlDeviceGetTemperature", ctypes.c_int(_CORE_TEMPERATURE))
    number("power_w", "nvmlDeviceGetPowerUsage", scale=1e-3)
    number("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", scale=1e-3)
    memory, use, mask = _Memory(), _Utilization(), ctypes.c_ulonglong()
    if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0:
        found["memory_used_mib"] = memory.used / 2**20
    if library.nvmlDeviceGetUtilizationRates(device, ctypes.byref(use)) == 0:
        found["utilization_percent"] = float(use.gpu)
    for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
        with contextlib.suppress(AttributeError):
            if getattr(library, name)(device, ctypes.byref(mask)) == 0:
                found["clock_mask"] = mask.value
                break
    return found


@functools.cache
def _library() -> Any:
    """NVML, initialised once per process; None when it is not there."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        return library if library.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
