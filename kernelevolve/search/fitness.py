"""What a result is worth to the search."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from kernelevolve.records import Interval, Node, Result


def fitness(result: Result) -> float:
    """t_reference / t_candidate, the reference being the fastest measured baseline; 0 unless correct and timed."""
    ratio = result.ratio
    if not result.correct or ratio is None or not math.isfinite(ratio.value):
        return 0.0
    return ratio.value


def confirmed(result: Result) -> Interval | None:
    """The re-measurements in fresh processes as one; None without any."""
    return pooled(result.confirmations) if result.confirmations else None


def score(node: Node) -> float:
    """What ranks a node: the confirmed ratio where there is one, else the fitness."""
    interval = confirmed(node.result)
    return node.fitness if interval is None or not node.result.correct else interval.value


def pooled(intervals: Sequence[Interval]) -> Interval:
    """Several measurements of one ratio: the median of their values, with the extremes of their intervals."""
    return Interval(statistics.median(i.value for i in intervals), min(i.low for i in intervals),
                    max(i.high for i in intervals), len(intervals))


def pooled_by_baseline(results: Iterable[Result]) -> dict[str, Interval]:
    """Per baseline that all of these correct results were timed beside, their ratios pooled."""
    right = [r.ratios for r in results if r.correct and r.ratios]
    common = set.intersection(*(set(r) for r in right)) if right else set()
    return {name: pooled([r[name] for r in right]) for name in (right[0] if right else ()) if name in common}
