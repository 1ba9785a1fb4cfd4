"""Greedy: expand the best node until it stops giving, then the next best."""

from __future__ import annotations

import dataclasses
import random

from kernelevolve import errors
from kernelevolve.records import Node, Selection
from kernelevolve.search.policies.base import Policy, preferred
from kernelevolve.search.tree import Tree


@dataclasses.dataclass(kw_only=True)
class Greedy(Policy):
    """The rule: a node whose last `patience` expansions all failed to beat it is tired. Expand the best node that is
    not tired; when all are, the one with the fewest misses, so that each gets another chance in turn.

    Ties go to the earlier node. Pinned nodes are the only ones considered while there are some.
    """

    name = "greedy"
    patience: int = 4
    """Expansions without gain after which a node gives way."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.patience, int) or self.patience < 1:
            raise errors.SettingError(f"patience must be a whole number of at least 1; got {self.patience!r}")

    def select(self, tree: Tree, rng: random.Random) -> Selection:
        """A draft while drafts are due, else the best node that still gives."""
        if draft := self.draft_first(tree):
            return draft
        nodes = sorted(preferred(tree), key=tree.rank)
        fresh = (n for n in nodes if tree.misses(n.number) < self.patience)
        node = next(fresh, None) or min(nodes, key=lambda n: tree.misses(n.number))
        numbers = {
            "score": tree.score(node.number), "misses": tree.misses(node.number), "candidates": len(nodes),
        }
        return Selection((node.number,), self._explain(tree, nodes, node), self.name, numbers)

    def _explain(self, tree: Tree, nodes: list[Node], node: Node) -> str:
        top, misses = nodes[0], tree.misses(node.number)
        what = f"{'pinned ' if node.number in tree.pinned else ''}node {node.number} ({tree.score(node.number):.2f}x)"
        if node is top:
            return f"{what} is the best of {len(nodes)}, with {misses} expansions in a row without gain"
        first = f"node {top.number} ({tree.score(top.number):.2f}x) gave no gain in {tree.misses(top.number)} turns"
        if misses < self.patience:
            return f"{first}, so it is the turn of {what}, the best with fewer than {self.patience} misses"
        return f"{first}; all {len(nodes)} are tired, and {what} is so with the fewest misses, {misses}"
