"""One interleaved timing session: several runners, in rounds, in ABBA order, on one clock each.

Every round measures every side once; odd rounds go in reverse order, so that a drift of the machine hits both
sides of a ratio alike. Rounds go on until the ratio's interval is tight or the time is spent. All samples are kept.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

from kernelevolve.evaluation.content import Mix, Pool
from kernelevolve.evaluation.link import Link, parsing
from kernelevolve.evaluation.statistics import enough
from kernelevolve.platforms.device import Memory
from kernelevolve.records import Timing, from_dict

SHORT_NS = 50_000
"""Below this a call is repeated within the span, so that the clock's own cost stays under a thousandth."""
SPAN_NS = 100_000
WARMUP_NS = 3_000_000
"""Warm-up at the head of every block. Idle OpenMP threads of the other side may still spin for a few milliseconds."""
MAX_SAMPLES = 40
FIRST_SLOTS = 4
MEET_NS = 50_000_000
"""Slots beyond the first four are used as far as meeting them takes no longer."""
LOOK_EVERY = 3
"""Rounds between two looks at the interval: the fewer looks, the less a lucky one can stop a session."""
MAX_ROUNDS = 240


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a session spends its time."""

    rounds: int
    """At least so many."""
    samples: dict[str, int]
    repeats: int
    """Calls per sample, equal on all sides; each has inputs of its own where memory allows."""
    flush_bytes: int


@dataclasses.dataclass(frozen=True)
class Block:
    """What a runner answered to one command, and what passed here meanwhile."""

    ns: list[int]
    """Per span, on the device's own clock, as the runner claims."""
    host_ns: list[int]
    issue_ns: list[int]
    passed_ns: int
    seed: int
    """Random numbers of span i are seeded with this plus i."""
    last: dict[str, Any] | None = None
    """The last output's description, where a memory was given for it."""

    @property
    def claimed_ns(self) -> int:
        """All spans together, on the host's clock."""
        return sum(self.host_ns)


@dataclasses.dataclass
class Side:
    """One runner with its slots; its samples in nanoseconds."""

    link: Link
    pool: Pool
    timeout_s: float
    ns: list[int] = dataclasses.field(default_factory=list)
    host_ns: list[int] = dataclasses.field(default_factory=list)
    issue_ns: list[int] = dataclasses.field(default_factory=list)
    rounds: list[int] = dataclasses.field(default_factory=list)
    clocks_disagree: str = ""
    met: int = 0
    """How many of the slots it was called on before; no others are used in a session."""
    last: tuple[int, Mix, int] = (0, Mix(0, -1, 0.0), 0)
    """Slot, content and seed of the last call."""

    def ask(self, spans: list[list[int]], *, warmup_ns: int = 0, flush_bytes: int = 0, keep: bool = False,
            memory: Memory | None = None, seed: int | None = None) -> Block:
        """One command: warm up on slot 0, then a sample per span; notes when more time is claimed than passed here."""
        seed = secrets.randbelow(2**31) if seed is None else seed
        start = time.perf_counter_ns()
        answer = self.link.ask("time", {
            "warm": 0, "warmup_ns": warmup_ns, "spans": spans, "flush_bytes": flush_bytes, "seed": seed, "keep": keep,
        }, timeout_s=self.timeout_s, memory=memory)
        passed = time.perf_counter_ns() - start
        with parsing(self.link.name):
            ns, host, issue = ([int(v) for v in answer[key]] for key in ("ns", "host", "issue"))
            if not len(ns) == len(host) == len(issue) == len(spans) or min(ns + host, default=1) <= 0:
                raise ValueError(f"{len(ns)} times, the least {min(ns + host, default=0)} ns, for {len(spans)} spans")
        if max(sum(ns), sum(host)) > passed:
            self.clocks_disagree = f"{len(ns)} samples of {sum(ns)} ns in all, where {passed} ns passed outside"
        if spans:
            slot = spans[-1][-1]
            self.last = slot, self.pool.mixes[slot], seed + len(spans) - 1
        return Block(ns, host, issue, passed, seed, answer.get("last"))

    def take(self, samples: int, repeats: int, *, warmup_ns: int = 0, flush_bytes: int = 0) -> Block:
        """A block of samples on content that no call has seen, the warm-up on another slot."""
        spans = self.spans(samples, repeats)
        if warmup_ns and self.met == 1:
            self.ask([], warmup_ns=warmup_ns)  # the only slot: what warmed up must not be what is timed
            warmup_ns = 0
        self.pool.refresh([slot for span in spans for slot in span])
        return self.ask(spans, warmup_ns=warmup_ns, flush_bytes=flush_bytes)

    def meet(self) -> float:
        """Call it once on every slot, or on as many as it takes a moment for: lazy initialisation ends here.

        Answers about how long a call takes, in nanoseconds.
        """
        first = min(FIRST_SLOTS, len(self.pool))
        took = _per_call(self.ask([[slot] for slot in range(first)]))
        self.met = min(len(self.pool), max(first, int(MEET_NS / took)))
        if self.met > first:
            took = _per_call(self.ask([[slot] for slot in range(first, self.met)]))
        return took

    def spans(self, samples: int, repeats: int) -> list[list[int]]:
        """Slots of the calls: each used once while there are enough, slot 0 left to the warm-up."""
        low, count = (1, self.met - 1) if self.met > 1 else (0, 1)
        return [[low + (i * repeats + r) % count for r in range(repeats)] for i in range(samples)]

    def timing(self, repeats: int) -> dict[str, Any]:
        """The fields of a `records.Timing`."""
        on_host = self.link.device.name == "cpu"
        return {"name": self.link.name, "samples_ms": [v / repeats / 1e6 for v in self.ns], "rounds": self.rounds,
                "inner_repeats": repeats,
                "issue_ms": 0.0 if on_host else statistics.median(self.issue_ns) / repeats / 1e6}


def plan(estimates_ns: dict[str, float], *, time_s: float, rounds: int, flush_bytes: int, flush_ns: float,
         write_ns: float = 0.0, slots: int = 2**30, share: float = 1.0) -> Plan:
    """Spread this share of `time_s` evenly over rounds and sides; at least one sample each, and at least 6 rounds.

    `write_ns` is what new content for one of the `slots` costs.
    """
    fastest = min(estimates_ns.values())
    repeats = math.ceil(SPAN_NS / max(fastest, 100.0)) if fastest < SHORT_NS else 1
    cost = {name: flush_ns + repeats * (ns + write_ns) for name, ns in estimates_ns.items()}
    # A block costs its warm-up (at least one call) besides its samples.
    least = sum(max(WARMUP_NS, estimates_ns[name]) + cost[name] for name in cost)
    fit = int(time_s * 1e9 // least)
    rounds = max(6, min(rounds, fit))
    block_ns = share * time_s * 1e9 / rounds / len(cost)
    most = max(1, min(MAX_SAMPLES, slots // repeats))
    samples = {
        name: max(1, min(most, int((block_ns - max(WARMUP_NS, estimates_ns[name])) // cost[name]))) for name in cost
    }
    return Plan(rounds, samples, repeats, flush_bytes)


def _per_call(block: Block) -> float:
    """The median claim, but at least a quarter of what passed here: a false claim would call for a million calls."""
    calls = len(block.ns)
    return max(statistics.median(block.ns), 1.0, 0.25 * (block.passed_ns - calls * 10_000 - 1e6) / calls)


@dataclasses.dataclass
class Session:
    """A session under way, and what came of it."""

    sides: list[Side]
    time_s: float
    rounds: int
    flush_bytes: int
    tightness: float = 0.0
    """Half-width of the ratio's interval, relative, at which rounds end; 0 to spend all of `time_s`."""
    floor: float = 0.0
    """The machine's noise floor."""
    plan: Plan = dataclasses.field(init=False)
    stopped: str = ""
    """Why it ended: "tight", "settled" or "time"."""
    taken: int = 0
    """Rounds measured."""

    def run(self, after: Callable[[int], None] | None = None) -> None:
        """Calibrate, plan, and take every sample; `after` is called with the number of each round that ended.

        The first side's ratio to the fastest of the others decides when it is enough. Raises LinkError or RunnerError
        of the side that failed.
        """
        begin = time.perf_counter()
        estimates, flush_ns, write_ns = self._calibrate()
        # Half of the time for the rounds that are taken in any case, the rest for those that turn out to be needed.
        self.plan = plan(estimates, time_s=self.time_s, rounds=self.rounds, flush_bytes=self.flush_bytes,
                         flush_ns=flush_ns, write_ns=write_ns, share=0.5 if self.tightness else 1.0,
                         slots=min(max(side.met - 1, 1) for side in self.sides))
        while not self.stopped:
            self._round(self.taken)
            self.taken += 1
            if after is not None:
                after(self.taken - 1)
            if self.taken < self.plan.rounds:
                continue
            if self.tightness and (self.taken - self.plan.rounds) % LOOK_EVERY == 0:
                self.stopped = self._enough()
            spent = not self.tightness or time.perf_counter() - begin > self.time_s
            if not self.stopped and (spent or self.taken >= MAX_ROUNDS):
                self.stopped = "time"

    def timings(self) -> list[Timing]:
        """What was measured so far."""
        return [from_dict(Timing, side.timing(self.plan.repeats)) for side in self.sides]

    def _round(self, r: int) -> None:
        for side in self.sides if r % 2 == 0 else reversed(self.sides):
            n = self.plan.samples[side.link.name]
            block = side.take(n, self.plan.repeats, warmup_ns=WARMUP_NS, flush_bytes=self.flush_bytes)
            side.ns += block.ns
            side.host_ns += block.host_ns
            side.issue_ns += block.issue_ns
            side.rounds += [r] * len(block.ns)

    def _enough(self) -> str:
        mine, *others = self.timings()
        return enough(mine, min(others, key=lambda t: t.median_ms), tightness=self.tightness, floor=self.floor)

    def _calibrate(self) -> tuple[dict[str, float], float, float]:
        estimates: dict[str, float] = {}
        flush_ns = write_ns = 0.0
        for side in self.sides:
            estimates[side.link.name] = side.meet()
            start = time.perf_counter_ns()
            side.pool.refresh(side.spans(1, 1)[0])
            write_ns = max(write_ns, time.perf_counter_ns() - start)
            if self.flush_bytes:
                side.ask([], flush_bytes=self.flush_bytes)  # the buffer's first touch
                flush_ns = max(flush_ns, side.ask([], flush_bytes=self.flush_bytes).passed_ns)
        return estimates, flush_ns, write_ns
