"""The base of all selection policies."""

from __future__ import annotations

import dataclasses
import random
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from kernelevolve import errors
from kernelevolve.records import Node, Selection
from kernelevolve.search.tree import Tree


@dataclasses.dataclass(kw_only=True)
class Policy(ABC):
    """Chooses which nodes to expand. Its parameters are its dataclass fields, so that a journal can hold them.

    The tree is asked, never changed. `observe` hears of every node in the order recorded, after a resume too, so a
    policy may keep statistics of its own in fields declared with `init=False`. Zero, one or more parents may be
    selected; randomness comes from the given generator only.
    """

    name: ClassVar[str]
    drafts: int = 3
    """Independent drafts before anything is expanded."""

    def __post_init__(self) -> None:
        if not isinstance(self.drafts, int) or self.drafts < 1:
            raise errors.SettingError(f"drafts must be a whole number of at least 1; got {self.drafts!r}")

    @abstractmethod
    def select(self, tree: Tree, rng: random.Random) -> Selection:
        """What to do next, with the reason in one sentence with numbers."""

    def observe(self, node: Node) -> None:  # noqa: B027 - most policies need only the tree
        """Learn from a node that was just recorded."""

    def draft_first(self, tree: Tree) -> Selection | None:
        """A draft while drafts are due or nothing may be expanded, else None."""
        done = len(tree.drafts)
        if done < self.drafts:
            return self.draft(f"draft {done + 1} of {self.drafts}: independent starts come first")
        if not tree.expandable():
            failed = sum(not n.result.correct for n in tree.nodes)
            return self.draft(f"another draft: none of {len(tree)} nodes can be built upon ({failed} failed)")
        return None

    def draft(self, reason: str) -> Selection:
        """An independent start, which sees nothing of the others."""
        return Selection((), reason, self.name, memory="nothing")

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Names of its parameters."""
        return [f.name for f in dataclasses.fields(cls) if f.init]

    def parameters(self) -> dict[str, Any]:
        """Its parameters by name: `create(name, **parameters)` makes the same policy again."""
        return {name: getattr(self, name) for name in self.parameter_names()}


def preferred(tree: Tree) -> list[Node]:
    """The nodes to choose among: the pinned ones when any of them may be expanded, else all that may."""
    nodes = tree.expandable()
    return [n for n in nodes if n.number in tree.pinned] or nodes
