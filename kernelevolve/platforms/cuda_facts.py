"""What an NVIDIA device is, and what state it is in: the driver's attributes; NVML's or nvidia-smi's readings.

`describe` runs in a worker, because it initialises CUDA; the other functions may run anywhere.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import importlib.metadata
import io
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelevolve.errors import WorkerError
from kernelevolve.platforms import cuda_nvml
from kernelevolve.platforms.cuda_library import error_name, load_library

_ATTRIBUTES = {
    "max_threads_per_block": 1, "warp_size": 10, "registers_per_block": 12, "clock_khz": 13,
    "multiprocessors": 16, "memory_clock_khz": 36, "memory_bus_bits": 37, "l2_bytes": 38,
    "max_threads_per_multiprocessor": 39, "major": 75, "minor": 76, "shared_bytes_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82, "shared_bytes_per_block": 97,
}
"""Numbers of CUdevice_attribute; the last one is what a block may opt in to."""

_SMI_TIMEOUT_S = 10.0
_STATE = {
    "clocks.sm": "clock_mhz", "clocks.mem": "memory_clock_mhz", "clocks.max.sm": "clock_max_mhz",
    "temperature.gpu": "temperature_c", "power.draw": "power_w", "power.limit": "power_limit_w",
    "utilization.gpu": "utilization_percent", "memory.used": "memory_used_mib",
    "clocks_event_reasons.active": "clock_mask",
}
"""nvidia-smi's names, and the ones used here, units in the names."""
_OLD_NAMES = {"clocks_event_reasons.active": "clocks_throttle_reasons.active"}
"""What drivers before 535 call them."""
_REASONS = {
    0x1: "idle", 0x2: "application clocks", 0x4: "power cap", 0x8: "hardware slowdown", 0x10: "sync boost",
    0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown", 0x80: "power brake", 0x100: "display clocks",
}
"""Bits of NVML's clock event reasons."""
BENIGN = frozenset({"idle", "application clocks", "sync boost", "display clocks"})
"""Reasons that nobody would call throttling."""
_SLOWED = 0.97
"""Share of its highest clock below which a device is slowed down: a reason alone is also given for a moment ago."""


def unavailable() -> str:
    """Why this machine has no usable CUDA device; empty when it seems to have one. Initialises nothing."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every device; unset it, or name one"
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return "no NVIDIA device (expected /dev/nvidia0; in a container, start it with the device passed in)"
    try:
        load_library()
    except WorkerError as error:
        return str(error)
    import torch

    if torch.version.cuda is None:
        return (f"the installed PyTorch {torch.__version__} was built without CUDA; install a CUDA build as "
                "https://pytorch.org/get-started says")
    return ""


def describe(_: Any = None) -> dict[str, Any]:
    """The first visible device, as plain JSON values. Sizes in bytes, clocks in MHz. Initialises CUDA.

    Raises WorkerError with CUDA's name for the error.
    """
    import torch

    cuda = load_library()

    def check(name: str, *arguments: Any) -> None:
        result = getattr(cuda, name)(*arguments)
        if result != 0:
            raise WorkerError(f"{name} failed: {error_name(cuda, result)}")

    check("cuInit", ctypes.c_uint(0))
    device, version, memory = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    check("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    check("cuDriverGetVersion", ctypes.byref(version))
    check("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    check("cuDeviceGetName", name, ctypes.c_int(256), device)
    check("cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid", uuid, device)
    found: dict[str, int] = {}
    for key, number in _ATTRIBUTES.items():
        value = ctypes.c_int()
        check("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), device)
        found[key] = value.value
    clock, memory_clock = found.pop("clock_khz") / 1000, found.pop("memory_clock_khz") / 1000
    return {
        "model": name.value.decode(errors="replace"),
        "uuid": format_uuid(uuid.raw),
        "compute_capability": f"{found.pop('major')}.{found.pop('minor')}",
        **found,
        # The last-level cache, under the name that every platform has for it.
        "l3_bytes": found["l2_bytes"],
        "device_memory_bytes": memory.value,
        "clock_mhz": clock,
        "device_memory_clock_mhz": memory_clock,
        "cuda_driver_api": f"{version.value // 1000}.{version.value % 1000 // 10}",
        "driver": driver_version(),
        "cuda": str(torch.version.cuda),
        "cudnn": _cudnn(torch),
        "torch": importlib.metadata.version("torch"),
        "triton": package_version("triton"),
        "tf32_matmul": bool(torch.backends.cuda.matmul.allow_tf32),
        "tf32_convolution": bool(torch.backends.cudnn.allow_tf32),
        "matmul_precision": torch.get_float32_matmul_precision(),
    }


def package_version(name: str) -> str:
    """Version of an installed package; empty when it is not there."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def driver_version() -> str:
    """The driver's own version, such as "580.159.04"; empty when nobody tells."""
    with contextlib.suppress(OSError):
        for word in Path("/proc/driver/nvidia/version").read_text().split():
            if word.count(".") >= 1 and word.replace(".", "").isdigit():
                return word
    rows = query(["driver_version"])
    return rows[0]["driver_version"] if rows else ""


def format_uuid(raw: bytes) -> str:
    """As nvidia-smi writes it: GPU-8-4-4-4-12."""
    text = raw.hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def conditions(uuid: str = "") -> dict[str, Any]:
    """Clocks, temperature, power, memory in use and throttling of a device now; empty when nobody tells.

    Keys carry their units. "clock_reasons" are the driver's; "throttled" are those of them that slow the device down,
    while its clock is lower than it could be.
    """
    found = (uuid and cuda_nvml.read(uuid)) or _by_command(uuid)
    if not found:
        return {}
    found["clock_reasons"] = throttle_reasons(int(found.pop("clock_mask", 0)))
    slowed = found.get("clock_mhz", 0.0) < _SLOWED * found.get("clock_max_mhz", 0.0)
    found["throttled"] = [reason for reason in found["clock_reasons"] if slowed and reason not in BENIGN]
    return found


def _by_command(uuid: str) -> dict[str, Any]:
    """What nvidia-smi says, where NVML does not."""
    rows = query(list(_STATE), uuid) or query([_OLD_NAMES.get(name, name) for name in _STATE], uuid)
    if not rows:
        return {}
    row = {new: rows[0].get(old, rows[0].get(_OLD_NAMES.get(old, old), "")) for old, new in _STATE.items()}
    found: dict[str, Any] = {}
    for name, text in row.items():
        with contextlib.suppress(ValueError):  # "[N/A]" on some devices: the key is left out
            found[name] = int(text, 0) if name == "clock_mask" else float(text)
    return found


def query(fields: Sequence[str], uuid: str = "", timeout_s: float = _SMI_TIMEOUT_S) -> list[dict[str, str]]:
    """nvidia-smi's answer, one mapping per device; empty when it is not there, fails, or takes too long."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    if uuid:
        command.append(f"--id={uuid}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse(done.stdout, fields)


def parse(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """CSV lines by field; a line with another number of fields is left out."""
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [dict(zip(fields, map(str.strip, row), strict=True)) for row in rows if len(row) == len(fields)]


def throttle_reasons(mask: int) -> list[str]:
    """Names of the bits of NVML's clock event reasons."""
    named = [name for bit, name in _REASONS.items() if mask & bit]
    rest = mask & ~sum(_REASONS)
    return named + ([f"unknown 0x{rest:x}"] if rest else [])


def memory_used_mib(uuid: str = "") -> float | None:
    """Memory in use by everybody on a device, or on all of them, in MiB; None when it cannot be read."""
    if uuid and "memory_used_mib" in (found := cuda_nvml.read(uuid)):
        return float(found["memory_used_mib"])
    rows = query(["memory.used"], uuid)
    try:
        return sum(float(row["memory.used"]) for row in rows) if rows else None
    except ValueError:
        return None


def _cudnn(torch: Any) -> str:
    try:
        return str(torch.backends.cudnn.version() or "")
    except RuntimeError:  # a library that does not fit the build
        return ""
