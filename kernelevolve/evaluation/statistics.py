"""Ratios of paired rounds, with intervals that assume no distribution."""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Sequence

from kernelevolve.records import Interval, Timing


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Median with the interval between two order statistics.

    The number of values below the true median is binomial(n, 1/2) whatever their distribution, so the j-th
    smallest and the j-th largest enclose it with probability 1 - 2 P(B < j) (Le Boudec, Performance Evaluation of
    Computer and Communication Systems, section 2.2.2). j is the largest that keeps `confidence`; with fewer than six
    values no pair does, and the extremes are taken.
    """
    s = sorted(values)
    n = len(s)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    j, below = 0, 0.5**n
    while j + 1 <= n // 2 and 2 * (below + math.comb(n, j + 1) * 0.5**n) <= 1 - confidence:
        j += 1
        below += math.comb(n, j) * 0.5**n
    return Interval(plain.median(s), s[j], s[n - 1 - j], n)


def ratio(baseline: Timing, candidate: Timing) -> Interval:
    """t_baseline / t_candidate: per round the ratio of the two medians, then the median over rounds."""
    mine, theirs = _by_round(candidate), _by_round(baseline)
    values = [plain.median(theirs[r]) / plain.median(mine[r]) for r in sorted(mine) if r in theirs]
    return median_interval(values)


def noise_floor(a: Timing, b: Timing) -> float:
    """Smallest ratio minus one that can be told from noise: how far the interval of two equal sides strays from 1."""
    interval = ratio(a, b)
    return max(interval.high - 1, 1 - interval.low, 0.0)


CLEAR = 3.0
"""A decision is settled when the interval, so many times as wide, still does not touch what would change it."""
COARSE = 5.0
"""And when it is no wider than so many times the tightness, because candidates are ranked by it too."""


def enough(candidate: Timing, baseline: Timing, *, tightness: float, floor: float) -> str:
    """Why a session may end: "tight", "settled", or "" for not yet.

    Tight: the half-width of the ratio's interval is at most `tightness` of the ratio. Settled: it is at most five times
    that, and would lie beyond the noise floor on one side of 1 even if it were three times as wide. Both treat a win
    and a loss alike, so neither can favour one. Stopping on a narrow interval favours narrow ones, not high ones; and
    a tripled interval clears 1 by chance in far fewer than one of a thousand sessions of equal sides, however often
    one looks.
    """
    found = ratio(baseline, candidate)
    if not found.value > 0 or found.n < 6:
        return ""
    width = (found.high - found.low) / 2 / found.value
    if width <= tightness:
        return "tight"
    if width > COARSE * tightness:
        return ""
    low = found.value / (found.value / found.low) ** CLEAR
    high = found.value * (found.high / found.value) ** CLEAR
    return "settled" if low > 1 + floor or high < 1 / (1 + floor) else ""


def drift(timing: Timing) -> float:
    """Last third of the rounds over the first third, minus 1; of the medians of their rounds. 0 below six rounds."""
    rounds = _by_round(timing)
    medians = [plain.median(rounds[r]) for r in sorted(rounds)]
    third = len(medians) // 3
    if third < 2:
        return 0.0
    return plain.median(medians[-third:]) / plain.median(medians[:third]) - 1


def _by_round(timing: Timing) -> dict[int, list[float]]:
    rounds: dict[int, list[float]] = {}
    for r, value in zip(timing.rounds, timing.samples_ms, strict=True):
        rounds.setdefault(r, []).append(value)
    return rounds
