"""The control sandwich: good, villain, good. The second good must be measured as if nothing had happened."""

import dataclasses
import time
from pathlib import Path

import pytest

from kernelevolve.evaluation import Evaluator
from kernelevolve.records import Problem, Proposal, Status
from kernelevolve.testing import villains
from tests.evaluation.problems import QUICK

SETTINGS = dataclasses.replace(QUICK, build_timeout_s=5.0, call_timeout_s=1.5)
CONTROL = villains.problem_source().replace("Model(", "ModelNew(")
"""PyTorch, because it needs no compiler and 46 of them are run; the C++ control runs once at each end."""


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    problem = Problem(id="villains/softmax", source=villains.problem_source(), code_hash="0")
    with Evaluator(problem, settings=SETTINGS, scratch=tmp_path_factory.mktemp("scratch")) as e:
        assert evaluate(e, villains.good_source()).correct
        yield e
        assert evaluate(e, villains.good_source()).correct


def evaluate(evaluator, source):
    return evaluator.evaluate(Proposal(source=source, language="", operator="hand"))


@pytest.mark.parametrize("villain", villains.load("cpu"), ids=lambda v: v.name)
def test_each_villain_gets_its_own_status_and_the_next_candidate_is_unharmed(evaluator, villain):
    stages = []
    evaluator.on_stage = lambda stage, seconds, status: stages.append((stage, status))
    begin = time.monotonic()
    result = evaluate(evaluator, villain.source)
    evaluator.on_stage = None
    assert result.status is villain.expect, result.detail
    assert stages[-1] == (villain.stage, villain.expect.value)
    assert result.detail
    assert len(result.log) < 70_000
    limit = SETTINGS.build_timeout_s if villain.stage == "build" else SETTINGS.call_timeout_s
    assert time.monotonic() - begin < limit + 10
    control = evaluate(evaluator, CONTROL)
    assert control.status is Status.CORRECT, control.detail
    assert control.ratios["eager"].n >= 6
    assert not list(Path(evaluator._root).glob("candidate-*"))
