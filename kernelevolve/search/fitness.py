"""What a result is worth to the search."""

from __future__ import annotations

import math

from kernelevolve.records import Interval, Result


def fitness(result: Result) -> float:
    """t_reference / t_candidate, the reference being the fastest measured baseline; 0 unless correct and timed."""
    ratio = result.ratio
    if not result.correct or ratio is None or not math.isfinite(ratio.value):
        return 0.0
    return ratio.value


def confirmed(result: Result) -> Interval | None:
    """The median of the re-measurements in fresh processes, with the extremes of their intervals; None without any."""
    values = sorted(i.value for i in result.confirmations)
    if not values:
        return None
    k = len(values) // 2
    median = values[k] if len(values) % 2 else (values[k - 1] + values[k]) / 2
    low, high = (f(getattr(i, end) for i in result.confirmations) for f, end in ((min, "low"), (max, "high")))
    return Interval(median, low, high, len(values))
