"""One shot: independent drafts only, the baseline that every search has to beat."""

from __future__ import annotations

import dataclasses
import random

from kernelevolve.records import Selection
from kernelevolve.search.policies.base import Policy
from kernelevolve.search.tree import Tree


@dataclasses.dataclass(kw_only=True)
class OneShot(Policy):
    """Never looks back."""

    name = "one-shot"

    def select(self, tree: Tree, rng: random.Random) -> Selection:
        """Always a draft."""
        return self.draft(f"draft {len(tree.drafts) + 1}: this policy only makes independent starts")
