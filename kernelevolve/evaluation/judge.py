"""The judge: a process that alone holds the problem, the reference, the inputs, the secret seeds and the truth.

It talks to runners over channels that the user's process hands it, and answers that process with verdicts and
samples. It starts and kills nothing. A lost runner is reported by name; whose fault that is, the owner decides,
who can see how the process ended.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from kernelevolve.errors import KernelEvolveError
from kernelevolve.evaluation import checking, rules, timing
from kernelevolve.evaluation.compare import examine
from kernelevolve.evaluation.link import Link, LinkError, RunnerError
from kernelevolve.evaluation.trials import DISTRIBUTIONS, GIVEN, Factory, Trial
from kernelevolve.evaluation.verdict import Verdict
from kernelevolve.platforms import PLATFORMS
from kernelevolve.records import LeafError, to_dict
from kernelevolve.workers.channel import Channel

_PREPARED_BYTES = 2 * 2**30
"""Prepared trials are kept up to this; a larger problem makes each when it is needed."""


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
        self.later = self.factory.again(self.timed)
        """The timed model's twin, whose weights change before each verification after timing."""
        self.library = self.factory.library(self.timed, first)
        """What the reference leaves to PyTorch's operators: everything it does."""
        self.stand = timing.Stand(self)
        return {
            "case": self.factory.case,
            "working_set_bytes": sum(map(_bytes, (first.leaves, first.reference, list(self.timed.state.values())))),
            "reference_s": first.reference_s,
            "notes": self.stand.notes,
        }

    def attach(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take a baseline's runner: {"name", "timeout_s"}. Builds it, gives it the timing inputs, checks it once."""
        name, timeout_s = message["name"], message["timeout_s"]
        self.detach({"name": name}, [])
        link = self.links[name] = Link(name, fds[0], self.device)
        link.construct(self.timed, timeout_s=timeout_s)
        link.give(checking.SLOT, self.first.args, self.first.leaves, timeout_s=timeout_s)
        answer, memory = link.call(checking.SLOT, self.first, timeout_s=timeout_s)
        flags = self.stand.admit(link, timeout_s)  # compilers meet every shape before the clock runs
        verdict, errors = examine(answer, memory, self.first, self.rules, self.scale)
        if verdict is None:
            return {"note": "", "flags": flags}
        return {"flags": flags, "note": f"{verdict.status.value}: {verdict.detail}", "errors": to_dict(errors)}

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
            self.later = self.factory.refresh(self.later, fresh_seed())
            self.unseen = self.factory.trial(self.later, fresh_seed(), number=-1)

    def _trials(self) -> Iterator[Trial]:
        """Trial 0 as given, on weights as constructed; then one per distribution.

        The first of these uses weights that were loaded, the others values that came into that same model later.
        """
        built = self.factory.weights(fresh_seed(), loaded=False)
        first = self.factory.trial(built, fresh_seed())
        assert first is not None  # the given distribution is never skipped
        yield first
        weights = self.factory.weights(fresh_seed(), loaded=True)
        names = [*DISTRIBUTIONS, *[GIVEN] * (self.settings["trials"] - 1 - len(DISTRIBUTIONS))]
        for number, name in enumerate(names, 1):
            if number == 2:
                weights = self.factory.refresh(weights, fresh_seed())
            trial = (self.factory.trial(weights, fresh_seed(), name, number)
                     or self.factory.trial(weights, fresh_seed(), GIVEN, number))
            assert trial is not None
            yield trial

    def take_trials(self) -> Iterator[Trial]:
        """The trials of one candidate: those that were made ahead, or new ones."""
        ready, self.prepared = self.prepared, []
        return iter(ready) if len(ready) >= self.settings["trials"] else self._trials()

    def check(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take the candidate's runner and judge it on every trial: {"language"}."""
        return checking.check(self, self._take_candidate(fds), message.get("language", checking.OWN_LANGUAGE))

    def survey(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take the candidate's runner and judge the same outputs under every rule set: {"language"}."""
        return checking.survey(self, self._take_candidate(fds), message.get("language", checking.OWN_LANGUAGE))

    def _take_candidate(self, fds: list[int]) -> Link:
        self.detach({"name": "candidate"}, [])
        link = self.links["candidate"] = Link("candidate", fds[0], self.device)
        return link

    def _call(self, link: Link, trial: Trial, errors: list[LeafError], limit_s: float) -> Verdict | None:
        """One call on fresh shared memory, on the trial's own weights, its inputs compared afterwards."""
        return checking.verify(self, link, trial, errors, limit_s)

    def time(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Time the candidate beside the named baselines, verifying what it does meanwhile: {"names", "floor"}."""
        return self.stand.candidate(message["names"], message["floor"])

    def compare(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Time runners that are attached, against each other: {"names", "time_s"}."""
        return self.stand.compare(message["names"], message["time_s"])

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
