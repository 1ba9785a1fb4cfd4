"""One candidate under every rule set: what each says of the same outputs, and where they disagree."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from kernelevolve.errors import StudyError
from kernelevolve.records import LeafError, Problem, Proposal, Result, from_dict, to_dict
from kernelevolve.settings import RULE_SETS, Settings, rule_set
from kernelevolve.store import StudyLog
from kernelevolve.views.html import Html, clip, escape, number, table

COLUMNS = ("rules", "status", "output", "error", "limit", "first failing trial", "detail")


@dataclasses.dataclass(frozen=True, repr=False)
class Survey:
    """Results by rule set, all from one run of the trials. Nothing was timed."""

    title: str
    results: Mapping[str, Result]

    @property
    def accepted(self) -> tuple[str, ...]:
        """Rule sets that call it correct."""
        return tuple(name for name, result in self.results.items() if result.correct)

    @property
    def refused(self) -> tuple[str, ...]:
        """The others."""
        return tuple(name for name, result in self.results.items() if not result.correct)

    @property
    def sentence(self) -> str:
        """Every disagreement, with the numbers that decided; or that there is none."""
        if self.accepted and self.refused:
            verb = "accepts" if len(self.accepted) == 1 else "accept"
            whats = [f"{name} refuses: {_why(self.results[name])}" for name in self.refused]
            return f"{_and(self.accepted)} {verb} what {'; and what '.join(whats)}"
        statuses = {name: result.status.value for name, result in self.results.items()}
        if len(set(statuses.values())) > 1:
            return "all refuse it, as " + _and(tuple(f"{status} ({name})" for name, status in statuses.items()))
        word = next(iter(statuses.values()))
        return f"{next(iter(statuses))} says {word}" if len(statuses) == 1 else f"all {len(statuses)} agree: {word}"

    def cells(self) -> list[tuple[str, ...]]:
        """COLUMNS per rule set, as text."""
        rows: list[tuple[str, ...]] = []
        for name, result in self.results.items():
            worst = _worst(result)
            numbers = (str(worst.leaf), number(worst.error), number(worst.limit)) if worst else ("–", "–", "–")
            trial = "–" if result.correct else _trial(result) or "–"
            rows.append((name, result.status.value, *numbers, trial, clip(result.detail, 120) or "–"))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: the sentence, who accepts, and every result."""
        return {"title": self.title, "sentence": self.sentence, "accepted": list(self.accepted),
                "refused": list(self.refused), "results": {k: to_dict(v) for k, v in self.results.items()}}

    def __repr__(self) -> str:
        lines = [f"{c[0]}: {c[1]}, error {c[3]}, limit {c[4]}" for c in self.cells()]
        return "\n".join([self.title, *lines, self.sentence])

    def _repr_html_(self) -> str:
        drawn = table(COLUMNS, self.cells(), numeric=("error", "limit"), caption=self.title)
        return Html(f"{drawn}<p>{escape(self.sentence)}</p>")._repr_html_()


def survey(problem: Problem, proposal: Proposal, *, title: str, platform: str = "auto",
           settings: Settings | None = None, seed: int = 0, rules: str = "all") -> Survey:
    """Run a candidate's trials once, with fresh secret inputs, and judge the outputs under `rules`, "all" or one name.

    Raises UnknownNameError for rules that nobody knows, StudyError for a proposal without a source.
    """
    from kernelevolve.evaluation import Evaluator

    wanted = RULE_SETS if rules == "all" else (rule_set(rules),)
    if not proposal.source.strip():
        raise StudyError(f"{title} holds no source ({proposal.failure or 'no_code'}): there is nothing to judge")
    # Nothing is timed: one baseline, measured as briefly as can be, is all that an evaluator needs to start.
    settings = dataclasses.replace(settings or Settings(), baselines=("eager",), baseline_time_s=0.05)
    untimed = dataclasses.replace(problem, references=())
    with Evaluator(untimed, platform=platform, seed=seed, settings=settings) as evaluator:
        found = evaluator.survey(proposal)
    return Survey(title, {name: found[name] for name in wanted})


def survey_of(study: StudyLog, node: int, rules: str = "all") -> Survey:
    """`survey` for a stored node, on the platform and with the limits of its study."""
    header = study.header
    return survey(study.problem, study.nodes[node].proposal, title=f"{study.name}, node {node}",
                  platform=header["platform"], settings=from_dict(Settings, header["settings"]),
                  seed=int(header["seed"]), rules=rules)


def _worst(result: Result) -> LeafError | None:
    """The leaf that decided: a failed one, or the one nearest to its limit."""
    return max(result.errors, key=lambda e: (not e.passed, e.error / e.limit if e.limit else e.error), default=None)


def _trial(result: Result) -> str:
    """Where it failed first, as the verdict names it: number, distribution and seed."""
    match = re.search(r"trial (.+? \(seed \d+\))", result.detail)
    failed = next((e for e in result.errors if not e.passed), None)
    return match[1] if match else failed.trial if failed else ""


def _why(result: Result) -> str:
    worst = _worst(result)
    if worst is None or worst.passed:
        return f"{result.status.value}, {clip(result.detail, 160)}"
    told = f"leaf {worst.leaf}, error {number(worst.error, 2)}, limit {number(worst.limit, 2)}"
    return told if worst.error > worst.limit else f"{told}, but one element is off by {number(worst.max_abs, 2)}"


def _and(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
