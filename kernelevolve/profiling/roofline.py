"""Where a candidate stands under the machine's roofline (Williams, Waterman and Patterson, CACM 2009).

Traffic is `problem.bytes_min`, what any implementation must move, so the achieved bandwidth is a lower bound on the
real one: a kernel that reads its input twice shows half of what the memory did. Work is what the problem states
(matrix products and convolutions), plus `pointwise_flops` of the genome when the writer counted it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from kernelevolve.profiling.base import Profiler, Subject, missing
from kernelevolve.records import Problem, Result, Timing

CANDIDATE = "candidate"


def locate(result: Result, facts: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """The roofline part of a profile; None stands for what is not known.

    Keys: median_ms, spread (interquartile range over the median), round_spread and baseline_round_spread (the same of
    the medians per round), bytes_min, flops, intensity (FLOP per byte), achieved_gb_s, achieved_gflops, peak_gb_s,
    peak_gflops, memory_ms, compute_ms, bound_ms, bound_share (bound over median), memory_share, compute_share,
    in_cache.
    """
    timing = next((t for t in result.timings if t.name == CANDIDATE and t.samples_ms), None)
    if timing is None or not timing.median_ms > 0:
        return missing("not timed")
    median_ms = timing.median_ms
    flops = problem.flops + _number(result.proposal.genome or {}, "pointwise_flops", 0.0)
    memory_peak = max(_number(facts, "copy_gb_s", 0.0), _number(facts, "read_gb_s", 0.0)) or None
    achieved_gb_s = problem.bytes_min / median_ms / 1e6 if problem.bytes_min > 0 else None
    in_cache = _in_cache(timing, facts, problem, achieved_gb_s, memory_peak)
    # The cache's figure is of one core, as each core has its own; a device has one cache for all.
    cache_peak = _number(facts, "cache_gb_s", 0.0) * max(1.0, _number(facts, "threads", 1.0)) or None
    cache_peak = _number(facts, "device_cache_gb_s", 0.0) or cache_peak
    peak_gb_s = cache_peak or memory_peak if in_cache else memory_peak
    peak_gflops = _peak_gflops(facts, problem)
    memory_ms = problem.bytes_min / peak_gb_s / 1e6 if achieved_gb_s and peak_gb_s else None
    compute_ms = flops / peak_gflops / 1e6 if flops and peak_gflops else None
    bound_ms = result.bound_ms or max(memory_ms or 0.0, compute_ms or 0.0) or None
    return {
        "median_ms": median_ms,
        "spread": spread(timing.samples_ms),
        "round_spread": round_spread(timing),
        "baseline_round_spread": min(
            (s for t in result.timings if t.name != CANDIDATE and (s := round_spread(t)) is not None), default=None
        ),
        "bytes_min": problem.bytes_min,
        "flops": flops,
        "intensity": flops / problem.bytes_min if problem.bytes_min > 0 else None,
        "achieved_gb_s": achieved_gb_s,
        "achieved_gflops": flops / median_ms / 1e6 if flops else None,
        "peak_gb_s": peak_gb_s,
        "peak_gflops": peak_gflops,
        "memory_ms": memory_ms,
        "compute_ms": compute_ms,
        "bound_ms": bound_ms,
        "bound_share": bound_ms / median_ms if bound_ms else None,
        "memory_share": memory_ms / median_ms if memory_ms else None,
        "compute_share": compute_ms / median_ms if compute_ms else None,
        "in_cache": in_cache,
    }


def spread(values: tuple[float, ...]) -> float | None:
    """Interquartile range over the median; None for fewer than four values."""
    if len(values) < 4 or not statistics.median(values) > 0:
        return None
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def round_spread(timing: Timing) -> float | None:
    """`spread` of the medians per round: what remains when a round's own noise is averaged out."""
    by_round: dict[int, list[float]] = {}
    for number, sample in zip(timing.rounds, timing.samples_ms, strict=False):
        by_round.setdefault(number, []).append(sample)
    return spread(tuple(statistics.median(samples) for samples in by_round.values()))


def _in_cache(
    timing: Timing, facts: Mapping[str, Any], problem: Problem, achieved: float | None, memory_peak: float | None
) -> bool:
    """Whether the data came from cache: it fits there, and calls repeat without a flush or no memory is that fast."""
    last_level = max(_number(facts, f"l{level}_bytes", 0.0) for level in (2, 3))
    fits = 0 < problem.bytes_min <= last_level
    faster = bool(achieved and memory_peak and achieved > memory_peak)
    return (fits and (timing.inner_repeats > 1 or faster)) or (not last_level and faster)


def _peak_gflops(facts: Mapping[str, Any], problem: Problem) -> float | None:
    peak = _number(facts, "fp32_gflops", 0.0)
    if any(output.dtype == "float64" for output in problem.outputs):
        peak = _number(facts, "fp64_gflops", peak / 2)  # half as many lanes in a register
    return peak or None


def _number(values: Mapping[str, Any], key: str, default: float) -> float:
    value = values.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < float("inf") else default


class Roofline(Profiler):
    """Achieved rates against the machine's measured peaks."""

    name = "roofline"

    def applies(self, subject: Subject) -> bool:
        """Every measured candidate; a modelled time has no rates."""
        return subject.result.measured

    def measure(self, subject: Subject) -> dict[str, Any]:
        """Keys as in `locate`."""
        return locate(subject.result, subject.facts, subject.problem)
