"""The judge: a process that alone holds the problem, the reference, the inputs, the secret seeds and the truth.

It talks to runners over channels that the user's process hands it, and answers that process with verdicts and
samples. It starts and kills nothing. A lost runner is reported by name; whose fault that is, the owner decides,
who can see how the process ended.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kernelevolve.errors import KernelEvolveError
from kernelevolve.evaluation import rules, session
from kernelevolve.evaluation.compare import examine
from kernelevolve.evaluation.link import Link, LinkError, RunnerError
from kernelevolve.evaluation.trials import DISTRIBUTIONS, GIVEN, Factory, Trial, Weights, same_bits
from kernelevolve.evaluation.verdict import Verdict, of_error
from kernelevolve.platforms import PLATFORMS
from kernelevolve.platforms.device import Memory
from kernelevolve.records import LeafError, Status, to_dict
from kernelevolve.workers.channel import Channel

_PREPARED_BYTES = 2 * 2**30
"""Prepared trials are kept up to this; a larger problem makes each when it is needed."""
_SLOT = 0
"""The slot of correctness calls; timing rotates over slots from 0 on."""


def main(channel: Channel) -> None:
    """Serve commands until the channel ends."""
    judge = Judge()
    while True:
        message, fds = channel.recv()
        op = message.pop("op")
        try:
            answer = getattr(judge, op)(message, fds)
        except LinkError as error:
            answer = {"lost": error.name, "reason": error.reason, "detail": error.detail}
        except RunnerError as error:
            answer = {"raised": error.name, "error": error.error}
        except KernelEvolveError as error:
            answer = {"refused": type(error).__name__, "message": str(error)}
        if answer is not None:
            channel.send(answer)


def fresh_seed() -> int:
    """A seed that no candidate can know beforehand; recorded with the trial that used it."""
    return secrets.randbelow(2**31)


class Judge:
    """State between commands: the problem, the runners by name, and the trials made ahead."""

    factory: Factory
    rules: rules.RuleSet

    def __init__(self) -> None:
        self.links: dict[str, Link] = {}
        self.prepared: list[Trial] = []
        self.unseen: Trial | None = None

    def open(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Load the problem: {"path", "platform", "case", "rules", "scale", "seed", "settings"}; makes timing inputs."""
        self.settings: Mapping[str, Any] = message["settings"]
        torch.set_num_threads(self.settings["threads"])
        self.rules, self.scale = rules.get(message["rules"]), float(message["scale"])
        self.device = PLATFORMS[message["platform"]].device
        self.factory = Factory(Path(message["path"]), message["case"], self.device)
        self.timed = self.factory.weights(message["seed"], loaded=False)
        first = self.factory.trial(self.timed, fresh_seed())
        assert first is not None  # the given distribution is never skipped
        self.first = first
        room = self.settings["input_bytes"] // max(first.size, 1)
        count = max(1, min(self.settings["input_sets"], room))
        self.sets = [(first.args, first.leaves)] + [self.factory.arguments(fresh_seed()) for _ in range(count - 1)]
        return {
            "case": self.factory.case,
            "working_set_bytes": sum(map(_bytes, (first.leaves, first.reference, list(self.timed.state.values())))),
            "reference_s": first.reference_s,
            "input_sets": count,
        }

    def attach(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take a baseline's runner: {"name", "timeout_s"}. Builds it, gives it the timing inputs, checks it once."""
        name, timeout_s = message["name"], message["timeout_s"]
        self.detach({"name": name}, [])
        link = self.links[name] = Link(name, fds[0], self.device)
        link.construct(self.timed, timeout_s=timeout_s)
        self._give_timing_inputs(link, timeout_s)
        answer, memory = link.call(_SLOT, self.first, timeout_s=timeout_s)
        for slot in range(1, len(self.sets)):  # compilers meet every shape before the clock runs
            session.Side(link, [slot]).take(1, 1, warmup_ns=0, flush_bytes=0, timeout_s=timeout_s)
        verdict, errors = examine(answer, memory, self.first, self.rules, self.scale)
        if verdict is None:
            return {"note": ""}
        return {"note": f"{verdict.status.value}: {verdict.detail}", "errors": to_dict(errors)}

    def detach(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Forget a runner."""
        link = self.links.pop(message["name"], None)
        if link is not None:
            link.close()
        return {}

    def prepare(self, _: dict[str, Any], __: list[int]) -> None:
        """Make the next candidate's trials, while it builds. Answers nothing."""
        if not self.prepared:
            kept = 0
            for trial in self._trials():
                self.prepared.append(trial)
                kept += trial.size + 3 * _bytes(trial.reference)
                if kept > _PREPARED_BYTES:
                    break
        if self.unseen is None:
            self.unseen = self.factory.trial(self.timed, fresh_seed(), number=-1)

    def _trials(self) -> Any:
        """Trial 0 as given, on weights as constructed; then one per distribution, on weights that were loaded."""
        built = self.factory.weights(fresh_seed(), loaded=False)
        yield self.factory.trial(built, fresh_seed())
        loaded = self.factory.weights(fresh_seed(), loaded=True)
        names = [*DISTRIBUTIONS, *[GIVEN] * (self.settings["trials"] - 1 - len(DISTRIBUTIONS))]
        for number, name in enumerate(names, 1):
            trial = self.factory.trial(loaded, fresh_seed(), name, number)
            yield trial or self.factory.trial(loaded, fresh_seed(), GIVEN, number)

    def check(self, _: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take the candidate's runner and judge it on every trial."""
        self.detach({"name": "candidate"}, [])
        link = self.links["candidate"] = Link("candidate", fds[0], self.device)
        ready, self.prepared = self.prepared, []
        errors: list[LeafError] = []
        weights: Weights | None = None
        trials = iter(ready) if len(ready) >= self.settings["trials"] else self._trials()
        for number, trial in enumerate(trials):
            limit = self._limit(trial)
            try:
                if trial.weights is not weights:
                    weights = trial.weights
                    link.construct(weights, timeout_s=limit)
                # The first trial is called twice: the second answer must not be the first one's buffer, nor drift.
                for _again in range(2 if number == 0 else 1):
                    verdict = self._call(link, trial, errors, limit)
                    if verdict:
                        return self._verdict(verdict, errors, number + 1)
            except RunnerError as error:
                return self._verdict(of_error(error.error, building=False), errors, number + 1)
        return self._verdict(Verdict(Status.CORRECT), errors, self.settings["trials"])

    def _call(self, link: Link, trial: Trial, errors: list[LeafError], limit_s: float) -> Verdict | None:
        """One call on fresh shared memory, its inputs compared afterwards."""
        given = link.give(_SLOT, trial.args, trial.leaves, timeout_s=limit_s)
        answer, memory = link.call(_SLOT, trial, timeout_s=limit_s)
        if not trial.mutates:
            changed = _changed(given, trial)
            if changed:
                return Verdict(Status.MUTATED_INPUT, f"trial {trial.name} (seed {trial.seed}): {changed}")
        verdict, found = examine(answer, memory, trial, self.rules, self.scale)
        errors += found
        return verdict

    def time(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Time the candidate beside the named baselines, then verify it on unseen inputs: {"names"}."""
        link = self.links["candidate"]
        limit = self._limit(self.first)
        try:
            link.construct(self.timed, timeout_s=limit)
            self._give_timing_inputs(link, limit)
            answer = self._session(["candidate", *message["names"]], self.settings["time_s"], limit)
            unseen = self.unseen or self.factory.trial(self.timed, fresh_seed(), number=-1)
            self.unseen = None
            assert unseen is not None  # the given distribution is never skipped
            unseen.name = "after timing, unseen inputs"
            errors: list[LeafError] = []
            verdict = self._call(link, unseen, errors, limit)
        except RunnerError as error:
            if error.name != "candidate":
                raise
            return self._verdict(of_error(error.error, building=False), [], 0)
        if verdict is None and answer["clocks_disagree"].get("candidate"):
            verdict = Verdict(Status.SUSPECT, f"clocks disagree: {answer['clocks_disagree']['candidate']}")
        return {**self._verdict(verdict or Verdict(Status.CORRECT), errors, 0), **answer}

    def compare(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Time runners that are attached, against each other: {"names", "time_s"}."""
        return self._session(message["names"], message["time_s"], self._limit(self.first))

    def _session(self, names: list[str], time_s: float, limit_s: float) -> dict[str, Any]:
        slots = list(range(len(self.sets)))
        sides = [session.Side(self.links[name], slots) for name in names]
        start = time.perf_counter()
        plan = session.run(sides, time_s=time_s, rounds=self.settings["rounds"],
                           flush_bytes=self.settings["flush_bytes"], timeout_s=max(limit_s, 5 * time_s))
        return {
            "timings": [side.timing(plan.repeats) for side in sides],
            "clocks_disagree": {side.link.name: side.clocks_disagree for side in sides if side.clocks_disagree},
            "session_s": time.perf_counter() - start,
        }

    def _give_timing_inputs(self, link: Link, timeout_s: float) -> None:
        for slot, (args, leaves) in enumerate(self.sets):
            link.give(slot, args, leaves, timeout_s=timeout_s)

    def _limit(self, trial: Trial) -> float:
        return max(self.settings["call_timeout_s"], 20 * trial.reference_s)

    def _verdict(self, verdict: Verdict, errors: list[LeafError], trials: int) -> dict[str, Any]:
        return {
            "status": verdict.status.value,
            "detail": verdict.detail,
            "errors": [to_dict(e) for e in _worst(errors)],
            "trials": trials,
            "skipped": dict(self.factory.skipped),
        }


def _changed(memory: Memory, trial: Trial) -> str:
    """Which input differs from what was given, or what was written beside them, and where; empty when nothing was."""
    place: Any = memory.breached(trial.specs)
    if place is not None:
        return f"byte {place} of the memory around the inputs was written; expected writes to outputs alone"
    for i, (now, then) in enumerate(zip(memory.tensors(trial.specs), trial.leaves, strict=True)):
        if not same_bits(now, then):
            place = [int(k) for k in (now != then).nonzero()[0]]
            return (f"input {i} was changed by the call, such as {then[tuple(place)].item()!r} to "
                    f"{now[tuple(place)].item()!r} at {place}; expected inputs to be left alone")
    return ""


def _worst(errors: list[LeafError]) -> list[LeafError]:
    """Per leaf the trial that came nearest to its limit, or passed it furthest."""

    def badness(e: LeafError) -> tuple[bool, float]:
        return not e.passed, e.error / e.limit if e.limit > 0 else (math.inf if e.error > 0 else 0.0)

    found: dict[int, LeafError] = {}
    for e in errors:
        if e.leaf not in found or badness(e) > badness(found[e.leaf]):
            found[e.leaf] = e
    return [found[leaf] for leaf in sorted(found)]


def _bytes(leaves: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in leaves)
