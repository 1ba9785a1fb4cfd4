"""The contract that every selection policy keeps, as tests. Subclass it in a test file and give `make`:

    class TestGreedy(PolicyContract):
        def make(self) -> Policy:
            return Greedy()

`grow` plays a policy on a made-up landscape, where a candidate's fate is a function of its ancestry and of a seed.
Needs pytest's runner and hypothesis (`pip install kernelevolve[dev]`).
"""

from __future__ import annotations

import dataclasses
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelevolve.records import Interval, Node, Proposal, Result, Selection, Status, to_dict
from kernelevolve.search import Tree, fitness
from kernelevolve.search.policies import Policy, create, known

_FAILURES = (Status.WRONG_VALUE, Status.COMPILE_ERROR, Status.TIMEOUT, Status.DUPLICATE, Status.NO_CODE)


@dataclasses.dataclass(frozen=True)
class Landscape:
    """A made-up problem: children vary around their best parent, and a share of all candidates fails."""

    seed: int = 0
    failing: float = 0.3
    spread: float = 0.2
    ties: bool = False
    """Round the ratios, so that many candidates are equally fast."""

    def answer(self, tree: Tree, selection: Selection, turn: int) -> Result:
        """What became of the candidate of this turn."""
        rng = random.Random(f"{self.seed}/{turn}/{selection.parents}")  # noqa: S311 - not for secrets
        proposal = Proposal(f"candidate = {turn}", "pytorch", "made-up", parents=selection.parents, selection=selection)
        if rng.random() < self.failing:
            return Result(proposal, rng.choice(_FAILURES), "made to fail")
        base = max((tree.score(p) for p in selection.parents), default=1.0)
        ratio = max(0.01, base * rng.lognormvariate(0.0, self.spread))
        ratio = max(0.5, round(ratio, 0)) if self.ties else ratio
        return Result(proposal, Status.CORRECT, ratios={"eager": Interval(ratio, ratio, ratio, 1)})


def grow(policy: Policy, steps: int, landscape: Landscape, *, seed: int = 0, tree: Tree | None = None) -> Tree:
    """Play a policy for some steps, as a study would; goes on with `tree` when one is given."""
    tree = tree if tree is not None else Tree()
    for _ in range(steps):
        turn = len(tree) + 1
        selection = policy.select(tree, random.Random(f"{seed}/{turn}"))  # noqa: S311 - not for secrets
        result = landscape.answer(tree, selection, turn)
        node = Node(turn, result, fitness(result), f"{turn:06d}")
        tree.add(node)
        policy.observe(node)
    return tree


def choices(tree: Tree) -> list[Selection | None]:
    """All selections in order."""
    return [n.proposal.selection for n in tree.nodes]


_landscapes = st.builds(
    Landscape, seed=st.integers(0, 10**6), failing=st.sampled_from([0.0, 0.3, 0.7]),
    spread=st.sampled_from([0.0, 0.2]), ties=st.booleans(),
)
# Every subclass runs the inherited tests: that is what they are for.
_examples = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.differing_executors])


class PolicyContract:
    """Subclass as `TestMyPolicy` and give `make`."""

    def make(self) -> Policy:
        """A fresh policy of the kind under test."""
        raise NotImplementedError

    @_examples
    @given(landscape=_landscapes, seed=st.integers(0, 99))
    def test_a_seed_fixes_the_tree(self, landscape: Landscape, seed: int) -> None:
        """Two fresh policies with one seed make the same choices, reasons included."""
        first, second = (grow(self.make(), 30, landscape, seed=seed) for _ in range(2))
        assert choices(first) == choices(second)

    @_examples
    @given(landscape=_landscapes, cut=st.integers(0, 30))
    def test_a_resumed_policy_goes_on_as_an_uninterrupted_one(self, landscape: Landscape, cut: int) -> None:
        """A fresh policy that observed all nodes so far chooses what the old one would have chosen."""
        whole = grow(self.make(), 30, landscape)
        heir, tree = self.make(), Tree()
        for node in whole.nodes[:cut]:
            tree.add(node)
            heir.observe(node)
        assert choices(grow(heir, 30 - cut, landscape, tree=tree)) == choices(whole)

    @_examples
    @given(landscape=_landscapes)
    def test_only_correct_nodes_are_built_upon(self, landscape: Landscape) -> None:
        """Every parent exists, is older, and was correct."""
        tree = grow(self.make(), 40, landscape)
        for node in tree.nodes:
            assert all(p < node.number and tree.node(p).result.correct for p in node.parents)

    @_examples
    @given(landscape=_landscapes, data=st.data())
    def test_vetoed_and_refuted_nodes_are_left_alone(self, landscape: Landscape, data: st.DataObject) -> None:
        """Whatever the engineer closes, and whatever failed when it was measured again, gets no further children."""
        policy = self.make()
        tree = grow(policy, 15, landscape)
        numbers = st.sets(st.sampled_from([n.number for n in tree.nodes]))
        tree.vetoed, tree.refuted = data.draw(numbers), data.draw(numbers)
        closed = tree.vetoed | tree.refuted
        grow(policy, 15, landscape, tree=tree)
        assert all(closed.isdisjoint(n.parents) for n in tree.nodes[15:])

    @_examples
    @given(landscape=_landscapes)
    def test_drafts_come_first_and_see_nothing(self, landscape: Landscape) -> None:
        """The first `drafts` selections have no parents, and no draft is shown anything."""
        policy = self.make()
        made = [s for s in choices(grow(policy, policy.drafts + 5, landscape)) if s is not None]
        assert all(s.is_draft for s in made[: policy.drafts])
        assert all(s.memory == "nothing" for s in made if s.is_draft)

    def test_it_drafts_again_while_nothing_is_correct(self) -> None:
        """Failed nodes are never optimised from."""
        tree = grow(self.make(), 12, Landscape(failing=1.0))
        assert all(n.parents == () for n in tree.nodes)

    @_examples
    @given(landscape=_landscapes)
    def test_selecting_changes_nothing(self, landscape: Landscape) -> None:
        """Asked twice with the same generator it answers the same; tree and global randomness stay as they were."""
        policy = self.make()
        tree = grow(policy, 20, landscape)
        before, state = [to_dict(n) for n in tree.nodes], random.getstate()
        first, second = (policy.select(tree, random.Random("once")) for _ in range(2))  # noqa: S311
        assert first == second
        assert [to_dict(n) for n in tree.nodes] == before
        assert random.getstate() == state

    @_examples
    @given(landscape=_landscapes)
    def test_each_choice_has_a_reason_with_numbers(self, landscape: Landscape) -> None:
        """One line, with a digit in it, under the policy's own name."""
        policy = self.make()
        for selection in choices(grow(policy, 25, landscape)):
            assert selection is not None
            assert selection.policy == policy.name
            assert "\n" not in selection.reason
            assert any(c.isdigit() for c in selection.reason)

    def test_its_parameters_make_it_again(self) -> None:
        """A journal holds name and parameters; that is enough."""
        policy = self.make()
        assert policy.name in known()
        assert create(policy.name, **policy.parameters()).parameters() == policy.parameters()
