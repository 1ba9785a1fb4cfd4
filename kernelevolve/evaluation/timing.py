"""Timing as the judge sees it: slots, sessions, and what is verified about them while they run."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernelevolve.evaluation import audit
from kernelevolve.evaluation.content import Content, Pool
from kernelevolve.evaluation.link import Link, RunnerError
from kernelevolve.evaluation.session import WARMUP_NS, Session, Side
from kernelevolve.evaluation.verdict import Verdict, of_error
from kernelevolve.evaluation.verify import Verifier
from kernelevolve.records import LeafError, Status

if TYPE_CHECKING:
    from kernelevolve.evaluation.judge import Judge

AUDITS = (3, 6)
"""How many audits a session has: drawn between these."""
CHECKS = 2
"""How many blocks have their last output verified."""
HUGE_BYTES = 256 * 2**20
"""Outputs of this size are verified twice at most."""
VERIFY_SHARE = 0.3
"""Verification may take this share of a session's time, once two outputs are verified."""
PASSES = 8
"""How often a suspicion is measured again before it is believed: a busy machine takes a while to be quick once."""
LONGS = 3
"""How many blocks are long enough for the judge's clock."""
_RNG = secrets.SystemRandom()


class _FoundError(Exception):
    """An output of a timed call is wrong."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


class Stand:
    """Where one problem is timed: content, the slots that all baselines share, and those of a candidate."""

    def __init__(self, judge: Judge) -> None:
        self.judge, self.settings = judge, judge.settings
        first = judge.first
        seeds = [secrets.randbelow(2**31) for _ in range(max(self.settings["input_sets"], 64))]
        self.content = Content(judge.factory, first.args, first.leaves, sets=self.settings["input_sets"], seeds=seeds,
                               input_bytes=self.settings["input_bytes"])
        self.count = self.content.slots(self.settings["input_sets"], self.settings["input_bytes"])
        self.pool = Pool(self.content, self.count)
        self.verifier = Verifier(judge, self.content)

    @property
    def notes(self) -> list[str]:
        """What cannot be done for this problem, in words."""
        found = []
        if not self.content.changes:
            found.append(f"timed calls see {len(self.content.draws)} input sets again and again, because no "
                         "floating-point input may be changed; audits use new ones")
        if self.count == 1:
            found.append("timed calls have one set of memory for their inputs, which is as much as input_bytes allows")
        return found

    def admit(self, link: Link, timeout_s: float) -> dict[str, Any]:
        """Give a baseline its slots and let it meet each of them; what its process was set to."""
        self.pool.give(link, timeout_s)
        self._side(link, self.pool, timeout_s).meet()
        return link.ask("flags", {}, timeout_s=timeout_s)

    def compare(self, names: Sequence[str], time_s: float) -> dict[str, Any]:
        """Time baselines against each other, for all of `time_s`."""
        limit_s = max(self._limit_s(), 5 * time_s)
        sides = [self._side(self.judge.links[name], self.pool, limit_s) for name in names]
        session = Session(sides, time_s, self.settings["rounds"], self.settings["flush_bytes"])
        session.run()
        return _answer(session)

    def candidate(self, names: Sequence[str], floor: float) -> dict[str, Any]:
        """Time the candidate beside the named baselines, and verify what it did meanwhile."""
        link = self.judge.links["candidate"]
        limit_s = max(self._limit_s(), 5 * self.settings["time_s"])
        errors: list[LeafError] = []
        pool: Pool | None = None
        session: Session | None = None
        numbers: dict[str, float] = {}
        try:
            link.construct(self.judge.timed, timeout_s=limit_s)
            pool = Pool(self.content, self.count)
            pool.give(link, limit_s)
            mine = self._side(link, pool, limit_s)
            others = [self._side(self.judge.links[name], self.pool, limit_s) for name in names]
            session = Session([mine, *others], self.settings["time_s"], self.settings["rounds"],
                              self.settings["flush_bytes"], self.settings["tightness"], floor)
            verdict = self._session(session, numbers, errors)
        except _FoundError as found:
            verdict = found.verdict
        except RunnerError as error:
            if error.name != "candidate":
                raise
            verdict = of_error(error.error, building=False)
        finally:
            if pool is not None:
                pool.close()
        answer = self.judge._verdict(verdict or Verdict(Status.CORRECT), errors, 0)
        return {**answer, **_answer(session), "audit": numbers}

    def _session(self, session: Session, numbers: dict[str, float], errors: list[LeafError]) -> Verdict | None:
        """Run it with its checks and audits; what the candidate is to be accused of."""
        self.verifier.done = 0
        mine, *others = session.sides
        eager = next((side for side in others if side.link.name == "eager"), others[0])
        checks, audits = self._share()
        plan: dict[int, list[str]] = {}
        readings: list[audit.Reading] = []

        def after(r: int) -> None:
            if not r:
                for what in ["check"] * checks + ["audit"] * audits:
                    plan.setdefault(_RNG.randrange(session.plan.rounds), []).append(what)
            for what in sorted(plan.get(r, []), reverse=True):  # a check first: an audit's outputs replace its own
                if what == "check":
                    self._note(self.verifier.check(mine, session.plan.repeats), errors)
                else:
                    readings.append(self._audit(session, mine, errors))

        start = time.perf_counter()
        session.run(after)
        repeats = session.plan.repeats
        evidence = audit.Evidence(statistics.median(mine.ns) / repeats, readings)
        theirs = audit.Evidence(statistics.median(eager.ns) / repeats)
        fastest_ns = min(statistics.median(side.ns) for side in others) / repeats
        for _ in range(LONGS):
            self._long(mine, evidence, fastest_ns)
        found = audit.suspicion(evidence, copied_bytes=self.verifier.output_bytes)
        passes = 0
        while found is not None and passes < PASSES:
            passes += 1
            for side, of in ((mine, evidence), (eager, theirs), (eager, theirs), (mine, evidence)):
                of.audits.append(self._audit(session, side, errors))
                for long_ns in (*[audit.LONG_NS] * (LONGS - 1), audit.SURE_NS):
                    side.ask([], warmup_ns=WARMUP_NS, flush_bytes=session.flush_bytes)
                    self._long(side, of, fastest_ns, long_ns)
            found = audit.suspicion(evidence, theirs, copied_bytes=self.verifier.output_bytes)
        numbers |= {
            **audit.numbers(evidence), **audit.numbers(theirs, "eager_"), "audits": len(evidence.audits),
            "verified": self.verifier.done, "passes": passes, "session_s": time.perf_counter() - start,
        }
        wrong = self._unseen(mine, errors)
        if wrong is not None:
            return wrong
        if mine.clocks_disagree:
            return Verdict(Status.SUSPECT, f"clocks disagree: {mine.clocks_disagree}")
        return audit.lagging(mine, eager) or found

    def _unseen(self, mine: Side, errors: list[LeafError]) -> Verdict | None:
        """One call after all, on new weights where there are any: the last thing that is asked of a candidate."""
        judge = self.judge
        if judge.unseen is None:
            judge.later = judge.factory.refresh(judge.later, secrets.randbelow(2**31))
            judge.unseen = judge.factory.trial(judge.later, secrets.randbelow(2**31), number=-1)
        unseen, judge.unseen = judge.unseen, None
        assert unseen is not None  # the given distribution is never skipped
        unseen.name = "after timing, unseen inputs"
        return judge._call(mine.link, unseen, errors, mine.timeout_s)

    def _audit(self, session: Session, side: Side, errors: list[LeafError]) -> audit.Reading:
        """One audit; raises when an output of the candidate is wrong."""
        side.ask([], warmup_ns=WARMUP_NS, flush_bytes=session.flush_bytes)
        verify = side.link.name == "candidate"
        per_call = [statistics.median(each.ns) / session.plan.repeats for each in (side, *session.sides[1:])]
        wake = audit.calls_for(self._warm_ns(), per_call[0], min(per_call[1:])) if per_call[0] < WARMUP_NS else 0
        block, found = self.verifier.audit(side, session.plan.repeats, verify=verify, wake=wake)
        self._note(found, errors)
        return audit.reading(block, session.plan.repeats)

    def _note(self, found: tuple[Verdict | None, list[LeafError]], errors: list[LeafError]) -> None:
        verdict, more = found
        errors += more
        if verdict is not None:
            raise _FoundError(verdict)

    def _long(self, side: Side, evidence: audit.Evidence, fastest_ns: float, long_ns: float = audit.LONG_NS) -> None:
        found = audit.long_block(side, evidence.session_ns, fastest_ns, warm_ns=self._warm_ns(), long_ns=long_ns)
        if found is not None:
            evidence.longs.append(found)

    def _warm_ns(self) -> float:
        """How long to warm up: at times long enough for idle threads to wake, at times so short that a busy machine
        lets the whole block through in one go.
        """
        return _RNG.choice((1.0, WARMUP_NS / 3, WARMUP_NS))

    def _share(self) -> tuple[int, int]:
        """How many blocks are checked, and how many audits are made."""
        audits = _RNG.randint(*AUDITS)
        if self.verifier.output_bytes > HUGE_BYTES:
            return 0, 2
        room = int(VERIFY_SHARE * self.settings["time_s"] / max(self.verifier.cost_s, 1e-6))
        return min(CHECKS, max(1, room // 4)), min(audits, max(2, room))

    def _side(self, link: Link, pool: Pool, timeout_s: float) -> Side:
        return Side(link, pool, timeout_s)

    def _limit_s(self) -> float:
        return self.judge._limit(self.judge.first)


def _answer(session: Session | None) -> dict[str, Any]:
    """What was measured, in plain values."""
    if session is None or not session.taken or not all(side.ns for side in session.sides):
        return {"timings": [], "clocks_disagree": {}, "stopped": "", "rounds": 0}
    return {
        "timings": [side.timing(session.plan.repeats) for side in session.sides],
        "clocks_disagree": {side.link.name: side.clocks_disagree for side in session.sides if side.clocks_disagree},
        "stopped": session.stopped,
        "rounds": session.taken,
    }
