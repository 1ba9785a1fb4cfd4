"""A writer and an evaluator that answer at once, by rule: the loop and the store are tested with them, not kernels."""

import random
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelevolve.operators import Operator
from kernelevolve.records import Context, Diagnosis, Interval, Problem, Proposal, Result, Status, Timing

PROBLEM = Problem("cpu/rms_norm", "class Model: ...\n", "0" * 32, suite="cpu")
FAILURES = (Status.WRONG_VALUE, Status.CRASHED, Status.TIMEOUT)


class Writer(Operator):
    """Writes a number drawn from the context's seed; unbounded choice unless `choices` is given."""

    name = "fake"

    def __init__(self, choices: int = 10**9) -> None:
        self.choices = choices
        self.prepared = 0
        self.contexts: list[Context] = []

    def prepare(self, problem: Problem, facts: Mapping[str, Any]) -> None:
        self.prepared += 1

    def write(self, context: Context) -> Proposal:
        self.contexts.append(context)
        number = random.Random(context.seed).randrange(self.choices)
        return Proposal(f"class ModelNew:\n    value = {number}\n", "pytorch", self.name, rationale=f"try {number}")


class Judge:
    """Answers by the source alone: a share fails, the others get samples and the ratios that follow from them."""

    def __init__(self, failing: float = 0.3, delay_s: float = 0.0, again: float = 0.97) -> None:
        self.failing, self.delay_s, self.again = failing, delay_s, again
        self.evaluated: list[str] = []
        self.confirmed: list[str] = []
        self.started = self.closed = 0

    def start(self) -> dict[str, Any]:
        self.started += 1
        eager = timing("eager", 2.0, random.Random(0))
        return {"timings": [eager], "again": eager, "noise_floor": 0.01, "environment": {"id": "env", "cores": 2}}

    def evaluate(self, proposal: Proposal) -> Result:
        self.evaluated.append(proposal.source)
        time.sleep(self.delay_s)
        return answer(proposal, self.failing)

    def confirm(self, *proposals: Proposal) -> list[tuple[Result, ...]]:
        self.confirmed += [p.source for p in proposals]
        return [tuple(answer(p, 0.0, slower=1 / self.again) for _ in range(3)) for p in proposals]

    def close(self) -> None:
        self.closed += 1


def answer(proposal: Proposal, failing: float, slower: float = 1.0) -> Result:
    rng = random.Random(proposal.source)
    if rng.random() < failing:
        return Result(proposal, rng.choice(FAILURES), "made to fail", log="printed \udcff\n", stage_s={"build": 0.001})
    own = rng.uniform(0.5, 3.0) * slower
    timings = tuple(timing(name, ms, rng) for name, ms in (("candidate", own), ("eager", 2.0), ("compile", 1.5)))
    ratios = {t.name: ratio(t, timings[0]) for t in timings[1:]}
    return Result(
        proposal, Status.CORRECT, timings=timings, ratios=ratios,
        stage_s={"build": 0.001, "check": 0.001, "time": 0.001},
        diagnosis=Diagnosis("memory", "Moves 1 MB.", {"share": 0.5}), profile={"static": {"fma": 3}}, environment="env",
    )


def timing(name: str, ms: float, rng: random.Random) -> Timing:
    samples = tuple(ms * rng.uniform(0.95, 1.2) for _ in range(21))
    return Timing(name, samples, tuple(i // 3 for i in range(21)))


def ratio(baseline: Timing, candidate: Timing) -> Interval:
    def per_round(t: Timing) -> dict[int, float]:
        rounds: dict[int, list[float]] = {}
        for r, ms in zip(t.rounds, t.samples_ms, strict=True):
            rounds.setdefault(r, []).append(ms)
        return {r: statistics.median(values) for r, values in rounds.items()}

    theirs, mine = per_round(baseline), per_round(candidate)
    values = [theirs[r] / mine[r] for r in mine]
    return Interval(statistics.median(values), min(values), max(values), len(values))


def study(workspace: Path, **arguments: Any) -> Any:
    from kernelevolve.study import Study

    return Study(arguments.pop("problem", PROBLEM), workspace=workspace, operator=arguments.pop("operator", Writer()),
                 evaluator=arguments.pop("evaluator", Judge()), **arguments)
