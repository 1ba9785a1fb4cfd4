"""What was not as it should be while something was timed, in words that are stored and shown with the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.evaluation.statistics import drift
from kernelevolve.records import Timing

STEAL = 0.02
"""Share of the processors' time that the machine below may withhold before it is said."""
OTHERS = 0.1
"""Share of the processors' time that other programs may use before it is said."""
SLOWED = 0.05
"""By how much the clock may fall before it is said; turbo clocks wander by less."""
DRIFT = 0.03
"""By how much a baseline may drift before it is said, where the noise floor is lower."""


def flags(before: Mapping[str, Any], after: Mapping[str, Any], timings: Sequence[Timing],
          floor: float) -> tuple[str, ...]:
    """Flags of one session, from `Platform.conditions` before and after it and what was measured."""
    return (*_drift(timings, floor), *_throttling(before, after), *_contention(before, after),
            *_launch_bound(timings))


def _drift(timings: Sequence[Timing], floor: float) -> list[str]:
    baselines = [t for t in timings if t.name != "candidate"]
    if not baselines:
        return []
    fastest = min(baselines, key=lambda t: t.median_ms)
    found = drift(fastest)
    if abs(found) <= max(floor, DRIFT):
        return []
    how = "slower" if found > 0 else "faster"
    return [f"drift: {fastest.name} was {abs(found):.1%} {how} in the last third of the rounds than in the first"]


def _throttling(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    found = []
    more = after.get("throttled_count", 0) - before.get("throttled_count", 0)
    if more > 0:
        found.append(f"throttling: the processor slowed itself down for its heat, {more:.0f} times")
    if reasons := after.get("throttled"):
        found.append(f"throttling: the device is slowed down by {', '.join(map(str, reasons))}")
    old, new = before.get("clock_mhz", 0.0), after.get("clock_mhz", 0.0)
    if old and new < (1 - SLOWED) * old:
        found.append(f"throttling: the clock fell from {old:.0f} to {new:.0f} MHz")
    return found


def _contention(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    def passed(key: str) -> float:
        return float(after.get(key, 0.0)) - float(before.get(key, 0.0))

    whole = passed("busy_s") + passed("idle_s") + passed("steal_s")
    if whole <= 0:
        return []
    found = []
    if passed("steal_s") > STEAL * whole:
        found.append(f"contention: the machine below withheld {passed('steal_s') / whole:.0%} of the processors' time")
    others = passed("busy_s") - passed("own_s")
    if others > OTHERS * whole:
        found.append(f"contention: other programs used {others / whole:.0%} of the processors' time")
    return found


def _launch_bound(timings: Sequence[Timing]) -> list[str]:
    mine = next((t for t in timings if t.name == "candidate"), None)
    if mine is None:
        return []
    if mine.inner_repeats > 1:
        return [f"launch-bound: a call takes {mine.median_ms * 1e3:.3g} us, so that the call itself counts; "
                f"{mine.inner_repeats} calls per sample"]
    if mine.issue_ms and mine.issue_ms >= 0.9 * mine.median_ms:
        return [f"launch-bound: issuing a call takes the host {mine.issue_ms:.3g} ms of its {mine.median_ms:.3g} ms"]
    return []
