"""The trials of one candidate: every call's conduct, inputs and output, and what the library did in one of them."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelevolve.evaluation import rules as rule_sets
from kernelevolve.evaluation.compare import examine
from kernelevolve.evaluation.conduct import conduct
from kernelevolve.evaluation.fallback import counts, fallback
from kernelevolve.evaluation.link import Link, LinkError, RunnerError
from kernelevolve.evaluation.rules import RuleSet
from kernelevolve.evaluation.trials import Trial, same_bits
from kernelevolve.evaluation.verdict import Verdict, of_error
from kernelevolve.platforms.device import Memory
from kernelevolve.records import LeafError, Status

if TYPE_CHECKING:
    from kernelevolve.evaluation.judge import Judge

SLOT = 0
"""The slot of correctness calls."""
OWN_LANGUAGE = "pytorch"
"""A candidate in this language may leave all work to the library."""
_VALUES = (Status.WRONG_VALUE,)
"""Verdicts that depend on the rule set."""


@dataclasses.dataclass
class Run:
    """A candidate on its way through the trials."""

    link: Link
    language: str
    rules: Mapping[str, RuleSet]
    errors: dict[str, list[LeafError]]
    verdicts: dict[str, Verdict]
    """Per rule set, where something was wrong under it."""
    library: dict[str, int]
    notes: list[str]
    trials: int = 0

    @classmethod
    def start(cls, link: Link, language: str, rules: Mapping[str, RuleSet]) -> Run:
        """Nothing found yet."""
        return cls(link, language, rules, {name: [] for name in rules}, {}, {}, [])


def check(judge: Judge, link: Link, language: str) -> dict[str, Any]:
    """Judge a candidate on every trial, until something is wrong."""
    name = judge.rules.name
    run = Run.start(link, language, {name: judge.rules})
    verdict = _trials(judge, run) or run.verdicts.get(name) or Verdict(Status.CORRECT)
    return {**judge._verdict(verdict, run.errors[name], run.trials), "library_ops": run.library, "notes": run.notes}


def survey(judge: Judge, link: Link, language: str) -> dict[str, Any]:
    """Judge the same outputs under every rule set: {"rules": {name: a verdict}}; a wrong value ends nothing."""
    run = Run.start(link, language, rule_sets.RULES)
    whole = _trials(judge, run)
    found = {}
    for name in run.rules:
        verdict = whole or run.verdicts.get(name) or Verdict(Status.CORRECT)
        found[name] = {**judge._verdict(verdict, run.errors[name], run.trials), "library_ops": run.library,
                       "notes": run.notes}
    return {"rules": found}


def _trials(judge: Judge, run: Run) -> Verdict | None:
    """Every trial; a verdict that holds under every rule set ends them."""
    count = judge.settings["trials"]
    # The candidate cannot know in which trial its operators are counted, nor does that call stand out by its inputs.
    counted = secrets.randbelow(count - 1) + 1
    trials = judge.take_trials()
    for number, trial in enumerate(trials):
        limit = judge._limit(trial)
        run.trials = number + 1
        try:
            run.link.hold(trial.weights, timeout_s=limit)
            if number == counted:
                verdict = _count(judge, run, trial, limit)
                if verdict:
                    return verdict
            # The first trial is called twice: the second answer must not be the first one's buffer, nor drift.
            for again in range(2 if number == 0 else 1):
                verdict = _judge(judge, run, trial, limit, settle=bool(again))
                if verdict:
                    return verdict
                if len(run.verdicts) == len(run.rules):
                    return None
        except RunnerError as error:
            return of_error(error.error, building=False)
    return None


def call(judge: Judge, link: Link, trial: Trial, limit_s: float,
         **extra: bool) -> tuple[Verdict | None, dict[str, Any], Memory]:
    """One call on fresh shared memory: what its conduct and its inputs say, its answer and the output's memory."""
    where = f"trial {trial.name} (seed {trial.seed})"
    given = link.give(SLOT, trial.args, trial.leaves, timeout_s=limit_s)
    answer, memory = link.call(SLOT, trial, timeout_s=limit_s, **extra)
    if not trial.mutates:
        changed = _changed(given, trial)
        if changed:
            return Verdict(Status.MUTATED_INPUT, f"{where}: {changed}"), answer, memory
    return conduct(answer, where), answer, memory


def _judge(judge: Judge, run: Run, trial: Trial, limit_s: float, **extra: bool) -> Verdict | None:
    """One call, judged under every rule set of the run. What depends on none of them is answered."""
    verdict, answer, memory = call(judge, run.link, trial, limit_s, **extra)
    if verdict:
        return verdict
    for name, rules in run.rules.items():
        wrong, found = examine(answer, memory, trial, rules, judge.scale)
        run.errors[name] += found
        if wrong is None:
            continue
        if wrong.status not in _VALUES:
            return wrong
        if name not in run.verdicts:
            run.verdicts[name] = explained(judge, run.link, trial, wrong, limit_s)
    if "library" in answer:
        return _library(judge, run, answer["library"], trial)
    return None


def _count(judge: Judge, run: Run, trial: Trial, limit_s: float) -> Verdict | None:
    """A call whose library operators are counted. That it fails only when it is watched is said, and no verdict."""
    try:
        return _judge(judge, run, trial, limit_s, log=True)
    except RunnerError as error:
        run.notes.append(f"its library operators could not be counted: {of_error(error.error, building=False).detail}"
                         [:300])
        return None


def _library(judge: Judge, run: Run, log: Any, trial: Trial) -> Verdict | None:
    run.library.update(counts(log))
    if run.language == OWN_LANGUAGE:
        return None
    reason = fallback(judge.library, log)
    return Verdict(Status.DISHONEST, f"trial {trial.name} (seed {trial.seed}): {reason}") if reason else None


def explained(judge: Judge, link: Link, trial: Trial, wrong: Verdict, limit_s: float) -> Verdict:
    """A wrong value after weights were changed in place: is it right in a fresh model with these weights?"""
    if link.left_out:
        names = ", ".join(map(repr, link.left_out[:5]))
        wrong = Verdict(wrong.status, f"{wrong.detail}; the model has no {names} of the reference's shape, so that new "
                                      "weights cannot reach it")
    if not trial.weights.refreshed or link.left_out:
        return wrong
    try:
        link.construct(trial.weights, timeout_s=limit_s)
        bad, answer, memory = call(judge, link, trial, limit_s)
        fresh, _ = examine(answer, memory, trial, judge.rules, judge.scale)
    except (RunnerError, LinkError):
        return wrong
    if bad or fresh:
        return wrong
    return Verdict(wrong.status, f"stale weights: right in a fresh model with the same weights, wrong in one that ran "
                                 "before they were changed in place; expected weights to be read in every call, or "
                                 f"packed again when they change. {wrong.detail}")


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


def verify(judge: Judge, link: Link, trial: Trial, errors: list[LeafError], limit_s: float) -> Verdict | None:
    """One call under the judge's own rule set, on the weights of its trial; errors of its leaves are appended."""
    link.hold(trial.weights, timeout_s=limit_s)
    verdict, answer, memory = call(judge, link, trial, limit_s)
    if verdict:
        return verdict
    wrong, found = examine(answer, memory, trial, judge.rules, judge.scale)
    errors += found
    if wrong is not None and wrong.status in _VALUES:
        return explained(judge, link, trial, wrong, limit_s)
    return wrong
