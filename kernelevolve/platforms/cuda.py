"""NVIDIA devices through CUDA: the first visible one, its facts from the driver, its peaks measured once.

Nothing here initialises CUDA in the user's process, nor in the server that forks workers: a forked child of a process
that has touched the device cannot use it. Facts and peaks come from workers.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelevolve import workers
from kernelevolve.platforms import cuda_facts
from kernelevolve.platforms.base import Platform
from kernelevolve.platforms.cpu import host_conditions, memory_bytes, physical_cores

if TYPE_CHECKING:
    from kernelevolve.platforms.device import Device

log = logging.getLogger(__name__)

_VERSION = 1
"""Of the probes: results of another version are measured again."""


class Cuda(Platform):
    """The first CUDA device that this process may see."""

    name = "cuda"
    address_space = False

    @functools.cached_property
    def device(self) -> Device:  # type: ignore[override]
        """The current device of each process."""
        from kernelevolve.platforms.cuda_device import CudaDevice

        return CudaDevice()

    def available(self) -> tuple[bool, str]:
        """By the device's node, the driver's library and PyTorch's build; starts nothing."""
        reason = cuda_facts.unavailable()
        return not reason, reason

    @property
    def threads(self) -> int:
        """Physical cores, for what runs on the host."""
        return physical_cores()

    @property
    def flush_bytes(self) -> int:
        """Twice L2."""
        return 2 * int(_static_facts()["l2_bytes"])

    @property
    def lock_name(self) -> str:
        """One timing at a time per device, not per machine."""
        return f"cuda-{_static_facts()['uuid']}"

    def facts(self, *, again: bool = False) -> dict[str, Any]:
        """Facts and peaks. Bandwidths in GB/s (1e9 bytes), FLOP rates in GFLOP/s, sizes in bytes.

        "memory_bytes" is the host's, as on every platform, and "device_memory_bytes" the device's.

        Raises WorkerError when the device does not answer.
        """
        static = _static_facts()
        host = {"threads": self.threads, "memory_bytes": memory_bytes()}
        from kernelevolve.platforms.cuda_peaks import legitimate

        return {**static, **host, **legitimate(_peaks(again=again), static)}

    def conditions(self, pids: Sequence[int] = ()) -> dict[str, Any]:
        """Clocks, temperature, power, memory and throttling now, as far as nvidia-smi answers; and the host's."""
        return {**host_conditions(pids), **cuda_facts.conditions(str(_static_facts()["uuid"]))}


@functools.cache
def _static_facts() -> dict[str, Any]:
    found: dict[str, Any] = workers.call("kernelevolve.platforms.cuda_facts:describe", None, timeout_s=120)
    return found


def _peaks(*, again: bool) -> dict[str, float]:
    facts = _static_facts()
    return Cuda().kept_peaks(
        [facts["model"], facts["uuid"], facts["driver"], facts["torch"], _VERSION],
        "kernelevolve.platforms.cuda_peaks:measure",
        {"l2_bytes": facts["l2_bytes"], "device_memory_bytes": facts["device_memory_bytes"]},
        timeout_s=300, again=again)
