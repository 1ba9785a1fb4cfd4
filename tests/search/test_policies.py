"""Every policy keeps the contract; what is particular to one is tested here beside it."""

import random

import pytest

from kernelevolve import errors
from kernelevolve.records import Interval, Node, Proposal, Result, Selection, Status
from kernelevolve.search import Tree, policies
from kernelevolve.search.policies import Greedy, OneShot, Policy, Random
from kernelevolve.testing.policies import Landscape, PolicyContract, grow


class TestGreedyContract(PolicyContract):
    def make(self) -> Policy:
        return Greedy()


class TestImpatientGreedyContract(PolicyContract):
    def make(self) -> Policy:
        return Greedy(drafts=1, patience=1)


class TestRandomContract(PolicyContract):
    def make(self) -> Policy:
        return Random()


class TestOneShotContract(PolicyContract):
    def make(self) -> Policy:
        return OneShot()


def test_the_contract_covers_every_built_in_policy() -> None:
    covered = {kind().make().name for kind in PolicyContract.__subclasses__()}
    assert covered >= set(policies._BUILT_IN)


def tree_of(*entries: tuple[tuple[int, ...], float]) -> Tree:
    """Nodes from (parents, ratio); a ratio of 0 is a failure."""
    tree = Tree()
    for number, (parents, ratio) in enumerate(entries, start=1):
        selection = Selection(parents, "given", "test")
        proposal = Proposal(f"x = {number}", "pytorch", "test", parents=parents, selection=selection)
        status = Status.CORRECT if ratio else Status.WRONG_VALUE
        ratios = {"eager": Interval(ratio, ratio, ratio, 1)} if ratio else {}
        tree.add(Node(number, Result(proposal, status, ratios=ratios), ratio, "now"))
    return tree


DRAFTS = (((), 1.0), ((), 2.0), ((), 1.5))


def select(tree: Tree, policy: Policy | None = None) -> Selection:
    return (policy or Greedy()).select(tree, random.Random(0))


def test_greedy_expands_the_best_node() -> None:
    selection = select(tree_of(*DRAFTS))
    assert selection.parents == (2,)
    assert "node 2 (2.00x) is the best of 3" in selection.reason


def test_greedy_takes_the_earlier_of_two_equals() -> None:
    assert select(tree_of(((), 2.0), ((), 2.0), ((), 1.0))).parents == (1,)


def test_a_node_that_stops_giving_makes_way_for_the_next_best() -> None:
    tree = tree_of(*DRAFTS, ((2,), 0.0), ((2,), 1.2), ((2,), 1.9), ((2,), 2.0))
    selection = select(tree)
    assert selection.parents == (7,)
    assert "node 2 (2.00x) gave no gain in 4 turns" in selection.reason


def test_a_child_that_improves_makes_its_parent_fresh_again() -> None:
    tree = tree_of(*DRAFTS, ((2,), 0.0), ((2,), 0.0), ((2,), 0.0), ((2,), 2.5), ((2,), 0.0))
    assert tree.misses(2) == 1


def test_when_all_are_tired_the_least_tired_gets_the_turn() -> None:
    tree = tree_of(((), 2.0), ((), 1.0), ((), 0.0), ((1,), 0.0), ((1,), 0.0), ((2,), 0.0))
    selection = select(tree, Greedy(patience=1))
    assert selection.parents == (2,)
    assert "fewest misses" in selection.reason


@pytest.mark.parametrize("policy", [Greedy(), Random()])
def test_a_pinned_node_is_expanded_before_better_ones(policy: Policy) -> None:
    tree = tree_of(*DRAFTS)
    tree.pinned.add(1)
    selection = select(tree, policy)
    assert selection.parents == (1,)
    assert "pinned" in selection.reason


def test_a_pinned_failure_does_not_block_the_search() -> None:
    tree = tree_of(*DRAFTS, ((2,), 0.0))
    tree.pinned.add(4)
    assert select(tree).parents == (2,)


def test_random_reaches_every_correct_node() -> None:
    tree = tree_of(*DRAFTS)
    drawn = {Random().select(tree, random.Random(seed)).parents for seed in range(50)}
    assert drawn == {(1,), (2,), (3,)}


def test_greedy_beats_random_where_progress_is_heritable() -> None:
    def mean_best(policy: str) -> float:
        trees = [grow(policies.create(policy), 40, Landscape(seed=s), seed=s) for s in range(20)]
        return sum(t.score(t.best.number) for t in trees if t.best) / len(trees)

    assert mean_best("greedy") > mean_best("random") > mean_best("one-shot")


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(errors.UnknownNameError, match="known: greedy, one-shot, random"):
        policies.create("gready")


def test_a_wrong_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(errors.SettingError, match="it has drafts, patience"):
        policies.create("greedy", patients=3)
    with pytest.raises(errors.SettingError, match="drafts must be"):
        policies.create("random", drafts=0)


def test_an_instance_is_passed_through() -> None:
    policy = Greedy(patience=9)
    assert policies.create(policy) is policy
