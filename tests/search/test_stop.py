"""Rules that end a run."""

import dataclasses

import pytest

from kernelevolve import errors
from kernelevolve.records import Status, Timing
from kernelevolve.search import BoundReached, Spent, Stall, Steps, Target, Tree, WallTime
from kernelevolve.search.stop import HarnessFailing
from tests.search.test_policies import DRAFTS, tree_of


def test_steps_and_time_end_a_run() -> None:
    assert Steps(3).reason(Tree(), Spent(2)) is None
    assert Steps(3).reason(Tree(), Spent(3)) == "3 steps done"
    assert WallTime(5).reason(Tree(), Spent(1, 4.9)) is None
    assert WallTime(5).reason(Tree(), Spent(1, 5.2)) == "5 s used of 5 s"


def test_the_first_of_several_rules_gives_the_reason() -> None:
    rule = Steps(10) | WallTime(5) | Target(1.9)
    assert len(rule.members) == 3  # type: ignore[attr-defined]
    assert rule.reason(Tree(), Spent(1, 1.0)) is None
    assert rule.reason(Tree(), Spent(1, 6.0)) == "6 s used of 5 s"
    assert rule.reason(tree_of(*DRAFTS), Spent(3, 1.0)) == "node 2 reached 2.00x, the target was 1.9x"


def test_a_stall_counts_nodes_since_the_best() -> None:
    tree = tree_of(*DRAFTS, ((2,), 0.0), ((2,), 1.0))
    assert Stall(4).reason(tree, Spent(5)) is None
    assert Stall(3).reason(tree, Spent(5)) == "no improvement in the last 3 nodes"


def test_a_resumed_stalled_study_gets_its_steps_first() -> None:
    tree = tree_of(*DRAFTS, ((2,), 0.0), ((2,), 1.0))
    assert Stall(3).reason(tree, Spent(0)) is None


def test_the_bound_ends_a_run_when_it_is_nearly_reached() -> None:
    tree = tree_of(((), 2.0))
    node = tree.node(1)
    timed = dataclasses.replace(node.result, timings=(Timing("candidate", (1.0, 1.0), (0, 1)),), bound_ms=0.8)
    tree.update(dataclasses.replace(node, result=timed))
    assert BoundReached(0.9).reason(tree, Spent(1)) is None
    assert BoundReached(0.8).reason(tree, Spent(1)) == "node 1 runs at 80% of the physical bound"
    assert BoundReached().reason(tree_of(((), 2.0)), Spent(1)) is None


def test_a_package_that_fails_itself_does_not_burn_the_budget() -> None:
    tree = tree_of(((), 0.0), ((), 0.0), ((), 0.0))
    assert HarnessFailing().reason(tree, Spent(3)) is None
    for number in (1, 2, 3):
        node = tree.node(number)
        broken = dataclasses.replace(node.result, status=Status.HARNESS_ERROR, detail="no g++")
        tree.update(dataclasses.replace(node, result=broken))
    assert HarnessFailing().reason(tree, Spent(3)) == "this package failed 3 times in a row: no g++"


@pytest.mark.parametrize("make", [Steps, WallTime, Target, Stall, BoundReached])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "5"])
def test_a_limit_that_cannot_work_is_refused(make: type, value: object) -> None:
    with pytest.raises(errors.SettingError, match="must be a number above 0"):
        make(value)
