"""Whether a session's claims are true: a few calls that are timed one at a time, all verified, and the judge's clock.

A candidate shares a process with the code that times it, so whatever that answers is a claim. Two kinds of blocks
test it. An *audit* is one span on inputs that the judge drew a moment ago and wrote after everything else was done;
every output is kept, and which of them is verified is chosen afterwards. A *long* block has enough calls for the
judge's own clock. What noise can do is make a block look slower, so that minima over blocks are compared; and whoever
fails is measured again, in turns with the eager baseline, before anything is said.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

from kernelevolve.evaluation.session import Block, Side
from kernelevolve.evaluation.verdict import Verdict
from kernelevolve.records import Status

LONG_NS = 1_000_000
"""Claimed length of a long block: five times what a command and its answer cost, and shorter than the turn that a busy
machine's scheduler gives another program, so that some blocks are not interrupted."""
SURE_NS = 20_000_000
"""Claimed length of a block that is asked for once there is a suspicion: the way of a command and its answer, which
took 1.4 ms on a machine with a GPU where eager's took 0.3 ms, is lost in it, and a lie about the clock is not."""
SHORT_SLACK_NS = 3_000_000
"""What an audit, which is a short block, is allowed besides, where long blocks tell about the clock."""
_MOST_CALLS = 20_000
SHARE = 2 / 3
"""A claim below this share of what was found otherwise is not believed."""
SLACK_NS = 500_000
"""A command and its answer, on a machine that is busy with something else, before the eager baseline is asked."""
MOST_SLOWER = 2.0
"""How much slower than its session a side may be later because the eager baseline is."""
LAG_NS = 50_000
"""How long the host may notice the end of a span after the device, besides half of the span."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """One block of an audit."""

    calls: int
    """In the span that counts, the last."""
    span_ns: int
    """Claimed for it, on the device's own clock."""
    host_ns: int
    """Claimed for it, on the host's."""
    claimed_ns: int
    """Claimed for all spans of the block, on the host's clock."""
    passed_ns: int
    """What passed on the judge's clock from command to answer."""

    @property
    def unclaimed_ns(self) -> int:
        """What passed outside the spans: the way of a command and its answer, and whatever hides there."""
        return self.passed_ns - self.claimed_ns


@dataclasses.dataclass
class Evidence:
    """All readings of one side, beside what its session claims."""

    session_ns: float
    """Per call, median over the session."""
    audits: list[Reading] = dataclasses.field(default_factory=list)
    longs: list[Reading] = dataclasses.field(default_factory=list)

    def audited_ns(self) -> float:
        """Per call, the quickest audit; NaN without any."""
        return min((r.span_ns / r.calls for r in self.audits), default=math.nan)

    def outside_ns(self, allowed_ns: float) -> float:
        """Per call, the quickest long block on the judge's clock; NaN without any."""
        return min(((r.host_ns + r.unclaimed_ns - allowed_ns) / r.calls for r in self.longs), default=math.nan)

    def overhead_ns(self) -> float:
        """The least that passed outside the spans of any block."""
        return min((r.unclaimed_ns for r in [*self.audits, *self.longs]), default=math.nan)


def reading(block: Block, calls: int) -> Reading:
    """From a runner's answer whose last span had so many calls."""
    return Reading(calls, block.ns[-1], block.host_ns[-1], block.claimed_ns, block.passed_ns)


def calls_for(ns: float, session_ns: float, fastest_ns: float) -> int:
    """How many calls take so long, if the session's claim is true.

    No more than twenty times what the fastest baseline would need: a claim of next to nothing would keep the machine
    busy for minutes.
    """
    return min(math.ceil(ns / max(session_ns, fastest_ns / 20, 1.0)), _MOST_CALLS)


def long_block(side: Side, session_ns: float, fastest_ns: float, *, warm_ns: float,
               long_ns: float = LONG_NS) -> Reading | None:
    """A block long enough for the judge's clock, after a warm-up in the same command; None where a single call is."""
    calls = calls_for(long_ns, session_ns, fastest_ns)
    if calls == 1:
        return None
    warm = [0] * calls_for(warm_ns, session_ns, fastest_ns)
    return reading(side.ask([warm, side.spans(1, calls)[0]]), calls)


def suspicion(mine: Evidence, eager: Evidence | None = None, *, copied_bytes: int = 0) -> Verdict | None:
    """What the readings say against the session's claims; None when nothing does.

    With `eager`, whose readings were taken in turns with these, everything is allowed that happens to it too: the
    slower calls after a pause, memory that is not warm, a machine that is busy. Where that is too much to tell anything
    the verdict is harness_error. `copied_bytes` is the size of the
    output that an audit copies before it answers.
    """
    allowed, slower, later = float(SLACK_NS + copied_bytes), 1.0, 0.0  # a byte per nanosecond is slow for any memory
    if eager is not None and eager.audits:
        allowed = 2 * eager.overhead_ns() + 0.4 * SLACK_NS
        later_ns = [eager.audited_ns(), *([eager.outside_ns(allowed)] if eager.longs else [])]
        slower = max(1.0, max(later_ns) / eager.session_ns)
        later = 2 * max(0.0, eager.audited_ns() - eager.session_ns)
    for kind, slack in ((mine.audits, allowed + SHORT_SLACK_NS if mine.longs else allowed), (mine.longs, allowed)):
        if kind and min(r.unclaimed_ns - (1 / SHARE - 1) * r.claimed_ns for r in kind) > slack:
            least = min(kind, key=lambda r: r.unclaimed_ns)
            return Verdict(Status.DISHONEST, f"its clock claims {_ms(least.claimed_ns)} where {_ms(least.passed_ns)} "
                                             "passed outside")
    claim, outside, audited = mine.session_ns, mine.outside_ns(allowed), mine.audited_ns()
    patience = min(slower, MOST_SLOWER)
    quick = claim < SHARE * outside / patience
    single = claim < SHARE * audited / patience and audited - claim > min(later, MOST_SLOWER * claim) + 0.5 * claim
    if (quick or single) and slower > MOST_SLOWER and eager is not None:
        return Verdict(Status.HARNESS_ERROR, "the machine is too busy to tell whether times are true: eager itself "
                                             f"took {_ms(slower * eager.session_ns)} where its session says "
                                             f"{_ms(eager.session_ns)}")
    if quick:
        return Verdict(Status.DISHONEST, f"its clock claims {_ms(claim)} per call where at least {_ms(outside)} passed "
                                         "outside")
    if single:
        return Verdict(Status.SUSPECT, f"faster when many calls are timed than when one is: {_ms(claim)} per call in "
                                       f"the session, at least {_ms(audited)} on inputs that were drawn a moment "
                                       "before, with every output kept")
    return None


def lagging(mine: Side, reference: Side) -> Verdict | None:
    """Whether one side goes on working after the device's clock has stopped, and the other does not."""
    (late, limit), (theirs, their_limit) = (_lag(side.ns, side.host_ns) for side in (mine, reference))
    if late > limit and theirs <= their_limit:
        return Verdict(Status.DISHONEST, f"work went on after the device's clock stopped: {_ms(late)} longer by the "
                                         f"host's, where {reference.link.name} takes {_ms(theirs)}")
    return None


def _lag(device_ns: Sequence[int], host_ns: Sequence[int]) -> tuple[float, float]:
    """By how much the host's clock is behind the device's in the middle, and by how much it may be."""
    late = statistics.median(h - d for d, h in zip(device_ns, host_ns, strict=True))
    return late, LAG_NS + 0.5 * statistics.median(device_ns)


def numbers(evidence: Evidence, prefix: str = "") -> dict[str, float]:
    """What was found, in milliseconds per call, to be stored with a result."""
    found = {"claimed_ms": evidence.session_ns, "audited_ms": evidence.audited_ns(),
             "outside_ms": evidence.outside_ns(0.0), "overhead_ms": evidence.overhead_ns()}
    return {prefix + name: ns / 1e6 for name, ns in found.items() if math.isfinite(ns)}


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.4g} ms"
