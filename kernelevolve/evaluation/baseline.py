"""What the baselines measured at start: the yardstick of every later ratio."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kernelevolve.records import Problem, Timing

_RATES = {"float16": "fp16_gflops", "bfloat16": "bf16_gflops"}
"""The fact that bounds operations on a kind of number, where a device is faster on it than on float32."""


@dataclasses.dataclass(frozen=True)
class Baseline:
    """Baselines of one problem on one machine, as timed when the evaluator started."""

    timings: tuple[Timing, ...]
    """One per baseline: "eager", "compile", and each of the file's REFERENCES."""
    again: Timing
    """A second eager process in the same session: the A/A comparison."""
    noise_floor: float
    """Smallest ratio minus one that this machine can tell from noise."""
    bound_ms: float
    """Physical bound on the time; 0 when unknown."""
    environment: Mapping[str, Any]
    """The machine, with its id."""
    notes: tuple[str, ...] = ()
    """Baselines that are absent or disagree with the reference, input distributions left out, and why."""
    start_s: float = 0.0
    flags: tuple[str, ...] = ()
    """What was not as it should be while they were measured; as `Result.flags`."""

    @property
    def fastest(self) -> Timing:
        """The baseline that fitness divides by."""
        return min(self.timings, key=lambda t: t.median_ms)


def physical_bound_ms(problem: Problem, facts: Mapping[str, Any], *, threads: int, working_set_bytes: int) -> float:
    """The roofline's answer (Williams, Waterman and Patterson 2009): no implementation can be faster.

    Bytes that must move over the measured bandwidth, operations over the measured peak, whichever is longer. When
    all data fits the last-level cache the bandwidth is that of every core's own cache, because a flush does not
    empty every cache of every machine; a device has one cache for all, with a bound of its own. Operations in half
    precision are held against the rate of the matrix units in that precision, all others against `fp32_gflops`.
    Returns milliseconds; 0 when the machine's peaks are unknown.
    """
    if "copy_gb_s" not in facts:
        return 0.0
    memory = max(facts["copy_gb_s"], facts.get("read_gb_s", 0.0))
    cached = facts.get("device_cache_bound_gb_s") or facts["cache_gb_s"] * threads
    bandwidth = max(cached, memory) if working_set_bytes <= facts.get("l3_bytes", 0) else memory
    kinds = {tensor.dtype for tensor in (*problem.inputs, *problem.parameters, *problem.outputs)}
    rates = [facts[key] for kind, key in _RATES.items() if kind in kinds and key in facts]
    peak = max([facts["fp32_gflops"], *rates])
    return max(problem.bytes_min / (bandwidth * 1e9), problem.flops / (peak * 1e9)) * 1e3
