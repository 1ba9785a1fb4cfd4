"""The control sandwich: good, villain, good. The second good must be measured as if nothing had happened."""

import dataclasses
import os
import time
from pathlib import Path

import pytest

from kernelevolve.errors import KernelEvolveError
from kernelevolve.evaluation import Evaluator, isolation
from kernelevolve.records import Problem, Proposal, Status
from kernelevolve.testing import villains
from tests.evaluation.problems import QUICK

EXAMPLES = Path(__file__).parents[2] / "docs/examples/villains"
CANARY = Path("/var/tmp/kernelevolve-canary")
"""What `deletes_a_canary` is after."""
LIMITS = {"build_timeout_s": 5.0, "call_timeout_s": 1.5, "time_s": 0.05, "flush_bytes": 2**20,
          "folder_bytes": 16 * 2**20, "memory_bytes": 6 * 2**30}
"""Small enough to be quick. Those that several villains ask for are everybody's, so that they share an evaluator."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """What an evaluator is made of; villains with equal ones share it."""

    problem: str
    level: str
    limits: tuple
    folder: Path | None = None


def cases():
    """Every villain shipped for a CPU, and the documentation's example; in an order that starts few evaluators."""
    benches, found = {}, []
    for villain in [*villains.load("cpu"), *villains.load(folder=EXAMPLES)]:
        folder = EXAMPLES if (EXAMPLES / f"{villain.name}.py").exists() else None
        bench = Bench(villain.problem, villain.level, tuple(sorted({**LIMITS, **villain.settings}.items())), folder)
        benches.setdefault(bench, len(benches))
        found.append(pytest.param(bench, villain, id=villain.name))
    return sorted(found, key=lambda case: benches[case.values[0]])


@pytest.fixture(scope="module")
def evaluator(request, tmp_path_factory):
    bench = request.param
    try:
        isolation.get(bench.level)
    except KernelEvolveError as error:
        pytest.skip(str(error))
    problem = Problem(id="villains/problem", source=villains.problem_source(bench.problem, bench.folder), code_hash="0")
    settings = dataclasses.replace(QUICK, isolation=bench.level, **dict(bench.limits))
    good = villains.good_source(bench.problem, bench.folder)
    walled = bench.level != "process"  # what goes for the canary is run behind a wall only
    if walled:
        CANARY.write_text("alive")
    os.environ["KERNELEVOLVE_CANARY_KEY"] = "secret"
    try:
        with Evaluator(problem, settings=settings, scratch=tmp_path_factory.mktemp("scratch")) as e:
            assert evaluate(e, good).correct
            yield e
            after = evaluate(e, good)
            assert after.correct, after.detail
        assert not walled or CANARY.read_text() == "alive"
    finally:
        del os.environ["KERNELEVOLVE_CANARY_KEY"]
        if walled:
            CANARY.unlink(missing_ok=True)


def evaluate(evaluator, source):
    return evaluator.evaluate(Proposal(source=source, language="", operator="hand"))


def verdict_on(evaluator, villain, expect, stage):
    """Evaluate it, and hold what came against what must come."""
    stages = []
    evaluator.on_stage = lambda *ended: stages.append(ended)
    begin = time.monotonic()
    result = evaluate(evaluator, villain.source)
    took_s = time.monotonic() - begin
    evaluator.on_stage = None
    last, _, verdict = stages[-1]
    assert result.status is expect, f"{result.status} at {last}: {result.detail}"
    if expect is not Status.CORRECT:
        assert (last, verdict) == (stage or last, expect.value)
        assert result.detail
    assert len(result.log) < 70_000
    for told in (result.detail, result.log):
        assert told.encode().decode() == told
    limit_s = evaluator.settings.build_timeout_s if last == "build" else evaluator.settings.call_timeout_s
    assert took_s < limit_s + 10
    return [name for name, _, _ in stages]


@pytest.mark.parametrize(("evaluator", "villain"), cases(), indirect=["evaluator"], scope="module")
def test_each_villain_gets_its_own_status_and_the_next_candidate_is_unharmed(evaluator, villain, request):
    stages = verdict_on(evaluator, villain, villain.expect, villain.stage)
    if villain.stage == "source":
        assert stages == ["source"], "nothing of it may run"
        read, evaluator.settings = evaluator.settings, dataclasses.replace(evaluator.settings, read_source=False)
        try:
            verdict_on(evaluator, villain, villain.runtime, villain.runtime_stage)
        finally:
            evaluator.settings = read
    # PyTorch, because it needs no compiler and there are many; the C++ control runs once at each end.
    bench = request.node.callspec.params["evaluator"]
    control = evaluate(evaluator, villains.control_source(bench.problem, bench.folder))
    assert control.status is Status.CORRECT, control.detail
    assert control.ratios["eager"].n >= 6
    assert not list(Path(evaluator._root).glob("candidate-*"))
