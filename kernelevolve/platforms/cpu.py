"""This machine's processor: its facts from /proc and /sys, its peaks measured once."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import os
import platform as host
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelevolve.errors import MissingDependencyError
from kernelevolve.languages.cpp import compiler, compiler_version
from kernelevolve.platforms.base import Platform

if TYPE_CHECKING:
    from kernelevolve.platforms.device import Device

log = logging.getLogger(__name__)

_ISA = ("avx512f", "avx2", "avx", "asimd", "sve", "sse4_2")
"""Vector extensions, widest first, as the kernel names them."""
_LANES = {"avx512f": 16, "avx2": 8, "avx": 8, "asimd": 4, "sve": 4, "sse4_2": 4}


class Cpu(Platform):
    """The host processor."""

    name = "cpu"

    @functools.cached_property
    def device(self) -> Device:  # type: ignore[override]
        """Memory of the host."""
        from kernelevolve.platforms.device import Host

        return Host()

    def available(self) -> tuple[bool, str]:
        """Always here."""
        return True, ""

    @property
    def threads(self) -> int:
        """Physical cores that this process may use."""
        return physical_cores()

    @property
    def flush_bytes(self) -> int:
        """Twice the last-level cache."""
        return 2 * max(caches().values(), default=32 * 2**20)

    def conditions(self, pids: Sequence[int] = ()) -> dict[str, Any]:
        """From /proc and /sys."""
        return {**host_conditions(pids), **_clock()}

    def facts(self, *, again: bool = False) -> dict[str, Any]:
        """Facts and peaks. Bandwidths in GB/s (1e9 bytes), FLOP rates in GFLOP/s, sizes in bytes."""
        return {**_static_facts(), **_peaks(again=again)}


@functools.cache
def _static_facts() -> dict[str, Any]:
    info = _cpuinfo()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    isa = next((name for name in _ISA if name in flags), "scalar")
    try:
        tool = compiler()
        version = compiler_version(tool)
    except MissingDependencyError:
        tool = version = ""
    size = caches()
    return {
        "model": info.get("model name") or host.processor() or host.machine(),
        "machine": host.machine(),
        "cores": physical_cores(),
        "threads": physical_cores(),
        "l1_bytes": size.get("l1", 0),
        "l2_bytes": size.get("l2", 0),
        "l3_bytes": size.get("l3", 0),
        "cache_line_bytes": 64,
        "memory_bytes": memory_bytes(),
        "isa": isa,
        "isa_flags": sorted(flags & {*_ISA, "fma", "f16c", "avx512bw", "avx512_bf16", "avx512_vnni", "amx_tile"}),
        "vector_lanes_fp32": _LANES.get(isa, 1),
        "compiler": tool,
        "compiler_version": version,
        "python": host.python_version(),
        "torch": importlib.metadata.version("torch"),
        "system": f"{host.system()} {host.release()}",
    }


def _peaks(*, again: bool = False) -> dict[str, float]:
    facts = _static_facts()
    if not facts["compiler"]:
        log.warning("no C++ compiler: this machine's peaks cannot be measured, so no physical bound is known")
        return {}
    return Cpu().kept_peaks(
        [facts["model"], facts["cores"], facts["compiler_version"], facts["l3_bytes"], 1],
        "kernelevolve.platforms.peaks:measure",
        {"compiler": facts["compiler"], "threads": facts["cores"], "l1_bytes": facts["l1_bytes"],
         "l2_bytes": facts["l2_bytes"], "l3_bytes": facts["l3_bytes"]},
        timeout_s=120, again=again)


def host_conditions(pids: Sequence[int] = ()) -> dict[str, float]:
    """What the host's processors are busy with, and how much of it is these processes'; see `Platform.conditions`."""
    return {**_processor_times(), "own_s": sum(map(_process_s, pids)), "load": os.getloadavg()[0]}


def _processor_times() -> dict[str, float]:
    """Seconds of all processors together: at work, idle, and withheld by the machine below this one."""
    try:
        words = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    except OSError:
        return {}
    tick = os.sysconf("SC_CLK_TCK")
    user, nice, system, idle, waiting, irq, soft, steal = (int(word) / tick for word in words[:8])
    return {"busy_s": user + nice + system + irq + soft, "idle_s": idle + waiting, "steal_s": steal}


def _process_s(pid: int) -> float:
    """Processor seconds of a process with all its threads; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _clock() -> dict[str, float]:
    """The lowest clock of any processor of ours, and how often any was slowed for its heat."""
    found: dict[str, float] = {}
    base = Path("/sys/devices/system/cpu")
    clocks, throttled = [], []
    for cpu in os.sched_getaffinity(0):
        with contextlib.suppress(OSError, ValueError):
            clocks.append(int((base / f"cpu{cpu}/cpufreq/scaling_cur_freq").read_text()) / 1000)
        with contextlib.suppress(OSError, ValueError):
            throttled.append(int((base / f"cpu{cpu}/thermal_throttle/core_throttle_count").read_text()))
    if not clocks:
        with contextlib.suppress(OSError):
            text = Path("/proc/cpuinfo").read_text()
            clocks = [float(mhz) for mhz in re.findall(r"^cpu MHz\s*: ([0-9.]+)$", text, re.MULTILINE)]
    if clocks:
        found["clock_mhz"] = min(clocks)
    if throttled:
        found["throttled_count"] = float(sum(throttled))
    return found


def physical_cores() -> int:
    """Physical cores in this process's affinity mask, each counted once however many threads it runs."""
    seen = set()
    for cpu in os.sched_getaffinity(0):
        try:
            seen.add(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            seen.add(str(cpu))
    return len(seen)


@functools.cache
def caches() -> dict[str, int]:
    """Data cache sizes in bytes by level: {"l1": per core, "l2": per core, "l3": shared}."""
    found: dict[str, int] = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind = (index / "type").read_text().strip()
            level = (index / "level").read_text().strip()
            text = (index / "size").read_text().strip()
        except OSError:
            continue
        if kind != "Instruction":
            found[f"l{level}"] = int(text.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1], 1)
    return found or _caches_lscpu()


def _caches_lscpu() -> dict[str, int]:
    try:
        done = subprocess.run(["lscpu", "-B", "-C=NAME,ONE-SIZE"], capture_output=True, text=True, timeout=10,
                              check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    sizes = {}
    for name, size in re.findall(r"^(L\d)[du]?\s+(\d+)$", done.stdout, re.MULTILINE):
        sizes[name.lower()] = int(size)
    return sizes


def memory_bytes() -> int:
    """Memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpuinfo() -> dict[str, str]:
    try:
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
