"""The words for a ratio: a win, a tie or a loss, and whether fresh processes agreed."""

from __future__ import annotations

from collections.abc import Sequence

from kernelevolve.records import Interval


def verdict(ratio: Interval | None, noise_floor: float) -> str:
    """"win", "tie", "loss" or "not timed" for a ratio t_baseline / t_candidate; see `Interval.verdict`."""
    return ratio.verdict(noise_floor) if ratio is not None else "not timed"


def confirmation(confirmations: Sequence[Interval], noise_floor: float) -> str:
    """How many of the re-measurements in fresh processes were a win, in words."""
    if not confirmations:
        return "not yet confirmed in fresh processes"
    won = sum(verdict(c, noise_floor) == "win" for c in confirmations)
    if won == len(confirmations):
        return f"confirmed in {won} of {won} fresh processes"
    return f"not confirmed: a win in only {won} of {len(confirmations)} fresh processes"
