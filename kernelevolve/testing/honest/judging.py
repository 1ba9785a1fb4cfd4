"""Judge kernels in this process: the trials and the rules are the judge's own, only the walls are missing."""

from __future__ import annotations

import dataclasses
import math
import random
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from kernelevolve.evaluation import rules
from kernelevolve.evaluation.conditioning import NONE, Sensitivity, of_trial
from kernelevolve.evaluation.inside.tensors import flatten, unflatten
from kernelevolve.evaluation.trials import DISTRIBUTIONS, GIVEN, Factory, Trial
from kernelevolve.records import LeafError
from kernelevolve.testing.honest.registry import Kernel


@dataclasses.dataclass(frozen=True)
class Judged:
    """One kernel's evaluation: every trial under one set of seeds."""

    kernel: Kernel
    rule: str
    passed: bool
    worst: LeafError
    """The leaf and trial that failed, or that came nearest to failing."""
    ratio: float
    """Largest error over limit, of all leaves and trials, in the norm; 0 when exact and infinite when not finite."""
    skipped: tuple[str, ...] = ()
    """Distributions that said nothing about this problem."""


def trials(factory: Factory, seed: int) -> list[Trial]:
    """What one evaluation uses: the inputs as given, each distribution, and the inputs after timing."""
    seeds = random.Random(seed)  # noqa: S311  # repeatable on purpose
    weights = factory.weights(seeds.randrange(2**31), loaded=False)
    found = []
    for number, name in enumerate((GIVEN, *DISTRIBUTIONS, GIVEN)):
        trial = factory.trial(weights, seeds.randrange(2**31), name, number)
        found.append(trial or factory.trial(weights, seeds.randrange(2**31), GIVEN, number))
    return [t for t in found if t is not None]


def judge(kernels: Iterable[Kernel], seed: int, names: Iterable[str] = ("strict",)) -> Iterator[Judged]:
    """Judge kernels under rule sets, one evaluation each; trials are shared by the kernels of a problem.

    Args:
        kernels: What to judge.
        seed: Fixes inputs and weights; another seed is another evaluation.
        names: Rule sets.
    """
    grouped: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        grouped.setdefault(kernel.problem, []).append(kernel)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for number, (source, group) in enumerate(grouped.items()):
            path = Path(folder) / f"problem_{number}.py"
            path.write_text(source)
            factory = Factory(path, None)
            ready = trials(factory, seed)
            for kernel in group:
                answers = [_answer(kernel, trial) for trial in ready]
                for name in names:
                    yield _conclude(kernel, name, ready, answers, tuple(factory.skipped))


def _answer(kernel: Kernel, trial: Trial) -> list[torch.Tensor]:
    """The kernel's output leaves, their form checked."""
    torch.manual_seed(trial.seed)
    args = unflatten(trial.args, [t.clone() for t in trial.leaves])
    leaves: list[torch.Tensor] = []
    flatten(kernel.function(*args), leaves)
    for got, own in zip(leaves, trial.reference, strict=True):
        if got.shape != own.shape or got.dtype != own.dtype or got.device != own.device:
            raise ValueError(f"{kernel.name}: expected {own.dtype} {list(own.shape)} on {own.device}, "
                             f"got {got.dtype} {list(got.shape)} on {got.device}; mend the kernel")
    return leaves


def _conclude(kernel: Kernel, name: str, ready: list[Trial], answers: list[list[torch.Tensor]],
              skipped: tuple[str, ...]) -> Judged:
    errors = [e for trial, leaves in zip(ready, answers, strict=True) for e in _errors(trial, leaves, rules.get(name))]
    worst = max(errors, key=lambda e: (not e.passed, _ratio(e)))
    return Judged(kernel, name, all(e.passed for e in errors), worst, max(map(_ratio, errors)), skipped)


def _errors(trial: Trial, leaves: list[torch.Tensor], rule: rules.RuleSet) -> list[LeafError]:
    """Per leaf; what fails is judged again with the problem's sensitivity, as the judge does."""

    def judge_with(sensitivities: list[Sensitivity]) -> list[LeafError]:
        return [
            rule.judge(got, truth=true, reference=own, leaf=i, trial=trial.name, terms=trial.terms, sensitivity=s)
            for i, (got, own, true, s) in enumerate(
                zip(leaves, trial.reference, trial.truth, sensitivities, strict=True))
        ]

    found = judge_with([NONE] * len(leaves))
    return found if all(e.passed for e in found) else judge_with(of_trial(trial))


def _ratio(error: LeafError) -> float:
    if error.limit > 0:
        return error.error / error.limit
    return math.inf if error.error > 0 else 0.0
