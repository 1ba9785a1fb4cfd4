"""Random: after the drafts, any correct node with equal chance; what a policy has to beat to have earned its keep."""

from __future__ import annotations

import dataclasses
import random

from kernelevolve.records import Selection
from kernelevolve.search.policies.base import Policy, preferred
from kernelevolve.search.tree import Tree


@dataclasses.dataclass(kw_only=True)
class Random(Policy):
    """Uniform over the nodes that may be expanded (over the pinned ones while there are some)."""

    name = "random"

    def select(self, tree: Tree, rng: random.Random) -> Selection:
        """A draft while drafts are due, else a random node."""
        if draft := self.draft_first(tree):
            return draft
        nodes = preferred(tree)
        node = rng.choice(nodes)
        score = tree.score(node.number)
        pinned = "pinned " if node.number in tree.pinned else ""
        reason = f"drawn from {len(nodes)} {pinned}correct nodes with equal chance: node {node.number} ({score:.2f}x)"
        return Selection((node.number,), reason, self.name, {"candidates": len(nodes), "score": score})
