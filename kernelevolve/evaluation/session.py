"""One interleaved timing session: several runners, in rounds, in ABBA order, on one clock each.

Every round measures every side once; odd rounds go in reverse order, so that a drift of the machine hits both
sides of a ratio alike. All samples are kept.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from typing import Any

from kernelevolve.evaluation.link import Link

SHORT_NS = 50_000
"""Below this a call is repeated within the span, so that the clock's own cost stays under a thousandth."""
SPAN_NS = 100_000
WARMUP_NS = 3_000_000
"""Warm-up at the head of every block. Idle OpenMP threads of the other side may still spin for a few milliseconds."""
MAX_SAMPLES = 40


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a session spends its time."""

    rounds: int
    samples: dict[str, int]
    repeats: int
    """Calls per sample, equal on all sides: the first of them meets cold caches, the others warm ones."""
    flush_bytes: int


@dataclasses.dataclass
class Side:
    """Samples of one side, nanoseconds per sample."""

    link: Link
    slots: list[int]
    ns: list[int] = dataclasses.field(default_factory=list)
    rounds: list[int] = dataclasses.field(default_factory=list)
    next_slot: int = 0
    clocks_disagree: str = ""

    def take(self, samples: int, repeats: int, *, warmup_ns: int, flush_bytes: int, timeout_s: float) -> list[int]:
        """Ask for samples; notes when the runner claims more time than passed here."""
        start = time.perf_counter_ns()
        answer = self.link.ask("time", {
            "slots": self.slots, "first": self.next_slot, "samples": samples, "repeats": repeats,
            "warmup_ns": warmup_ns, "flush_bytes": flush_bytes,
        }, timeout_s=timeout_s)
        passed = time.perf_counter_ns() - start
        self.next_slot += samples * repeats + 1
        ns = [int(v) for v in answer["ns"]]
        if len(ns) != samples or min(ns, default=1) <= 0 or sum(ns) > passed:
            self.clocks_disagree = f"{len(ns)} samples of {sum(ns)} ns in all, where {passed} ns passed outside"
        return ns

    def timing(self, repeats: int) -> dict[str, Any]:
        """The fields of a `records.Timing`."""
        return {"name": self.link.name, "samples_ms": [v / repeats / 1e6 for v in self.ns], "rounds": self.rounds,
                "inner_repeats": repeats}


def plan(estimates_ns: dict[str, float], *, time_s: float, rounds: int, flush_bytes: int, flush_ns: float) -> Plan:
    """Spread `time_s` evenly over rounds and sides; at least one sample each, and at least 6 rounds."""
    fastest = min(estimates_ns.values())
    repeats = math.ceil(SPAN_NS / max(fastest, 100.0)) if fastest < SHORT_NS else 1
    cost = {name: flush_ns + repeats * ns for name, ns in estimates_ns.items()}
    # A block costs its warm-up (at least one call) besides its samples.
    least = sum(max(WARMUP_NS, estimates_ns[name]) + cost[name] for name in cost)
    fit = int(time_s * 1e9 // least)
    rounds = max(6, min(rounds, fit))
    share = time_s * 1e9 / rounds / len(cost)
    samples = {
        name: max(1, min(MAX_SAMPLES, int((share - max(WARMUP_NS, estimates_ns[name])) // cost[name]))) for name in cost
    }
    return Plan(rounds, samples, repeats, flush_bytes)


def run(sides: list[Side], *, time_s: float, rounds: int, flush_bytes: int, timeout_s: float) -> Plan:
    """Calibrate, plan, and take every sample. Raises LinkError or RunnerError of the side that failed."""
    estimates: dict[str, float] = {}
    flush_ns = 0.0
    for side in sides:
        # The first pass meets every input set once: lazy initialisation ends here.
        side.take(len(side.slots), 1, warmup_ns=0, flush_bytes=0, timeout_s=timeout_s)
        estimates[side.link.name] = statistics.median(side.take(3, 1, warmup_ns=0, flush_bytes=0, timeout_s=timeout_s))
        start = time.perf_counter_ns()
        side.take(1, 1, warmup_ns=0, flush_bytes=flush_bytes, timeout_s=timeout_s)  # the buffer's first touch
        if flush_bytes:
            start = time.perf_counter_ns()
            side.take(1, 1, warmup_ns=0, flush_bytes=flush_bytes, timeout_s=timeout_s)
            flush_ns = max(flush_ns, time.perf_counter_ns() - start - 2 * estimates[side.link.name])
    chosen = plan(estimates, time_s=time_s, rounds=rounds, flush_bytes=flush_bytes, flush_ns=flush_ns)
    for r in range(chosen.rounds):
        for side in sides if r % 2 == 0 else reversed(sides):
            n = chosen.samples[side.link.name]
            side.ns += side.take(n, chosen.repeats, warmup_ns=WARMUP_NS, flush_bytes=flush_bytes, timeout_s=timeout_s)
            side.rounds += [r] * n
    return chosen
