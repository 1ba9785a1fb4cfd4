"""The search graph, its ranking and what memory shows of it."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelevolve import errors
from kernelevolve.records import Interval, Node, Result, Selection, Status
from kernelevolve.search import Tree, fitness, history
from kernelevolve.search.policies import Random
from kernelevolve.testing.policies import Landscape, grow
from tests.search.test_policies import DRAFTS, tree_of


def confirm(tree: Tree, number: int, *ratios: float) -> None:
    node = tree.node(number)
    again = tuple(Interval(r, r, r, 1) for r in ratios)
    tree.update(dataclasses.replace(node, result=dataclasses.replace(node.result, confirmations=again)))


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.4]))
def test_lineage_is_acyclic_and_complete(seed: int, failing: float) -> None:
    tree = grow(Random(), 40, Landscape(seed=seed, failing=failing), seed=seed)
    for node in tree.nodes:
        up = {n.number for n in tree.ancestors(node.number)}
        assert all(n < node.number for n in up)
        assert all(p in up for p in node.parents)
        assert all(node.number in {d.number for d in tree.descendants(a)} for a in up)
        assert tree.depth(node.number) == 1 + max((tree.depth(p) for p in node.parents), default=0)
        assert all(node.number in {c.number for c in tree.children(p)} for p in node.parents)
    parents = {p for n in tree.nodes for p in n.parents}
    assert {n.number for n in tree.leaves} == {n.number for n in tree.nodes} - parents


def test_two_parents_make_a_diamond() -> None:
    tree = tree_of(*DRAFTS, ((1, 2), 3.0), ((4,), 1.0))
    assert [n.number for n in tree.ancestors(5)] == [1, 2, 4]
    assert [n.number for n in tree.descendants(1)] == [4, 5]
    assert tree.depth(5) == 3


def test_stage_follows_from_the_parents_verdicts() -> None:
    tree = tree_of(((), 1.0), ((), 0.0), ((1,), 2.0), ((2,), 1.0), ((1, 2), 1.0))
    assert [tree.stage(n) for n in range(1, 6)] == ["draft", "draft", "improve", "debug", "debug"]


def test_an_unknown_parent_or_a_wrong_number_is_refused() -> None:
    with pytest.raises(errors.StudyError, match="no node 7; this study has nodes 1 to 3"):
        tree_of(*DRAFTS, ((7,), 1.0))
    tree = tree_of(*DRAFTS)
    with pytest.raises(errors.StudyError, match="the next node has number 4; got 2"):
        tree.add(tree.node(2))


def test_a_confirmed_ratio_outranks_a_lucky_first_one() -> None:
    tree = tree_of(*DRAFTS)
    confirm(tree, 2, 1.2, 1.3, 1.4)
    assert tree.best is not None
    assert tree.best.number == 3
    assert tree.score(2) == 1.3


def test_what_failed_again_or_was_vetoed_is_not_best() -> None:
    tree = tree_of(*DRAFTS)
    tree.refuted.add(2)
    tree.vetoed.add(3)
    assert tree.best is not None
    assert tree.best.number == 1
    assert [n.number for n in tree.expandable()] == [1]


def test_measured_and_modelled_times_are_never_ranked_together() -> None:
    tree = tree_of(*DRAFTS)
    node = tree.node(2)
    tree.update(dataclasses.replace(node, result=dataclasses.replace(node.result, measured=False)))
    assert [n.number for n in tree.ranked()] == [3, 1]


def test_a_tree_without_a_correct_node_has_no_best() -> None:
    assert tree_of(((), 0.0)).best is None
    assert Tree().best is None
    assert tree_of(((), 0.0), ((), 1.0)).counts() == {"correct": 1, "wrong_value": 1}


@given(st.sampled_from(Status), st.floats(allow_nan=True, allow_infinity=True))
def test_fitness_is_zero_unless_correct_and_finite(status: Status, value: float) -> None:
    result = dataclasses.replace(tree_of(((), 1.0)).node(1).result, status=status,
                                 ratios={"eager": Interval(value, value, value, 1)})
    expected = value if status is Status.CORRECT and abs(value) < float("inf") else 0.0
    assert fitness(result) == expected


def test_fitness_divides_by_the_fastest_baseline() -> None:
    result = dataclasses.replace(tree_of(((), 1.0)).node(1).result,
                                 ratios={"eager": Interval(3, 3, 3), "compile": Interval(2, 2, 2)})
    assert fitness(result) == 2
    assert fitness(dataclasses.replace(result, ratios={})) == 0


MEMORY = [("parent", [2, 4]), ("siblings", [5, 6]), ("both", [2, 4, 5, 6]), ("nothing", [])]


@pytest.mark.parametrize(("memory", "seen"), MEMORY)
def test_memory_shows_what_its_name_says(memory: str, seen: list[int]) -> None:
    tree = tree_of(*DRAFTS, ((2,), 3.0), ((4,), 2.0), ((4,), 0.0), ((1,), 1.0))
    shown = history(tree, Selection((4,), "why 4", "test", memory=memory))
    assert [n.number for n in shown] == seen


def test_the_siblings_of_a_draft_are_the_other_drafts_without_lost_ones() -> None:
    tree = tree_of(*DRAFTS, ((2,), 3.0))
    lost = Result(tree.node(1).proposal, Status.LOST)
    tree.add(Node(5, lost, 0.0, "now"))
    shown = history(tree, Selection((), "why", "test", memory="siblings"))
    assert [n.number for n in shown] == [1, 2, 3]


def test_an_unknown_memory_is_refused() -> None:
    with pytest.raises(errors.UnknownNameError, match="memory operator"):
        history(tree_of(*DRAFTS), Selection((1,), "why", "test", memory="all"))
