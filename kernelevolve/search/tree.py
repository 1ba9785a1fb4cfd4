"""The search graph: every candidate that was asked for, what it came from, and what the engineer said about it.

Nodes are only added. Parents come before children, so it has no cycles. Stage and depth are derived.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelevolve import errors
from kernelevolve.records import Node, Status
from kernelevolve.search.fitness import score


class Tree:
    """A directed acyclic graph of nodes, numbered 1, 2, 3 … in the order recorded; 0 is the problem itself."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self._nodes: dict[int, Node] = {}
        self._children: dict[int, list[int]] = {}
        self._depth: dict[int, int] = {}
        self._correct: list[int] = []
        self._drafts: list[int] = []
        self._scores: dict[int, float] = {}
        self.pinned: set[int] = set()
        """Nodes that the engineer wants expanded before all others."""
        self.vetoed: set[int] = set()
        """Nodes that the engineer wants neither expanded nor called best."""
        self.refuted: set[int] = set()
        """Nodes that did not work when they were measured again in a fresh process."""
        self.hints: dict[int, list[str]] = {}
        """The engineer's words by node; those of node 0 hold for all."""
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        """Append a node. Raises StudyError when its number is not the next one or a parent is unknown."""
        if node.number != len(self._nodes) + 1:
            raise errors.StudyError(f"the next node has number {len(self._nodes) + 1}; got {node.number}")
        parents = [p for p in dict.fromkeys(node.parents) if p != 0]
        for parent in parents:
            self.node(parent)
        self._nodes[node.number] = node
        self._depth[node.number] = 1 + max((self._depth[p] for p in parents), default=0)
        for parent in parents:
            self._children.setdefault(parent, []).append(node.number)
        self._scores[node.number] = score(node)
        if node.result.correct:
            self._correct.append(node.number)
        selection = node.proposal.selection
        if selection is not None and selection.is_draft and node.status is not Status.LOST:
            self._drafts.append(node.number)

    def update(self, node: Node) -> None:
        """Put a node with new confirmations in its own place."""
        self._nodes[self.node(node.number).number] = node
        self._scores[node.number] = score(node)

    @property
    def nodes(self) -> list[Node]:
        """All nodes in the order recorded."""
        return list(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, number: object) -> bool:
        return number in self._nodes

    def node(self, number: int) -> Node:
        """The node with that number. Raises StudyError when there is none."""
        try:
            return self._nodes[number]
        except KeyError:
            raise errors.StudyError(f"no node {number!r}; this study has nodes 1 to {len(self)}") from None

    def parents(self, number: int) -> list[Node]:
        """Nodes it came from; empty for a draft."""
        return [self._nodes[p] for p in dict.fromkeys(self.node(number).parents) if p != 0]

    def children(self, number: int) -> list[Node]:
        """Nodes made from it, oldest first."""
        return [self._nodes[c] for c in self._children.get(number, ())]

    def ancestors(self, number: int) -> list[Node]:
        """Everything it descends from, oldest first."""
        return self._reach(number, lambda n: (p for p in self._nodes[n].parents if p != 0))

    def descendants(self, number: int) -> list[Node]:
        """Everything that descends from it, oldest first."""
        return self._reach(number, lambda n: self._children.get(n, ()))

    def _reach(self, number: int, step: object) -> list[Node]:
        found: set[int] = set()
        queue = [self.node(number).number]
        while queue:
            new = set(step(queue.pop())) - found  # type: ignore[operator]
            found |= new
            queue += new
        return [self._nodes[n] for n in sorted(found)]

    def depth(self, number: int) -> int:
        """Edges from the problem: 1 for a draft; of several parents the deepest counts."""
        return self._depth[self.node(number).number]

    def stage(self, number: int) -> str:
        """"draft" without parents, "debug" when a parent failed, else "improve"."""
        parents = self.parents(number)
        if not parents:
            return "draft"
        return "improve" if all(p.result.correct for p in parents) else "debug"

    @property
    def drafts(self) -> list[Node]:
        """The operator's own fresh starts that were brought to an end (neither the engineer's, nor lost ones)."""
        return [self._nodes[n] for n in self._drafts]

    @property
    def leaves(self) -> list[Node]:
        """Nodes without children."""
        return [n for number, n in self._nodes.items() if number not in self._children]

    def score(self, number: int) -> float:
        """What a node is ranked by: the confirmed ratio where there is one, else the fitness."""
        return self._scores[self.node(number).number]

    def expandable(self) -> list[Node]:
        """Nodes that may be built upon: correct, and neither vetoed nor refuted."""
        closed = self.vetoed | self.refuted
        return [self._nodes[n] for n in self._correct if n not in closed]

    def ranked(self) -> list[Node]:
        """Expandable nodes that were timed, best first; the earlier of two equals first. Measured and modelled
        times are never ranked together: where one node is measured, the modelled ones are left out.
        """
        return sorted(self._timed(), key=self.rank)

    def _timed(self) -> list[Node]:
        timed = [n for n in self.expandable() if n.fitness > 0]
        if any(n.result.measured for n in timed):
            timed = [n for n in timed if n.result.measured]
        return timed

    def rank(self, node: Node) -> tuple[float, int]:
        """Sort key, best first: by score, the earlier of two equals first."""
        return -self._scores[node.number], node.number

    @property
    def best(self) -> Node | None:
        """The fastest correct node, or None while there is none."""
        return min(self._timed(), key=self.rank, default=None)

    def misses(self, number: int) -> int:
        """How many of its latest expansions in a row did not come out faster than it."""
        own, count = self.score(number), 0
        for child in reversed(self.children(number)):
            if child.status is Status.LOST:
                continue
            if child.result.correct and self.score(child.number) > own:
                break
            count += 1
        return count

    def counts(self) -> dict[str, int]:
        """Number of nodes by status."""
        found: dict[str, int] = {}
        for node in self._nodes.values():
            found[node.status.value] = found.get(node.status.value, 0) + 1
        return dict(sorted(found.items()))

    def __repr__(self) -> str:
        best = self.best
        shown = f"best {best.number} at {self.score(best.number):.2f}x" if best else "none correct yet"
        return f"<Tree of {len(self)} nodes: {shown}>"
