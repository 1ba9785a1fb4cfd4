"""The memory operator: which earlier nodes a writer may see.

"parent" is the parents' trajectory, "siblings" the other attempts from the same parents, "both" and "nothing" what
they say. Less memory is a way out of a local optimum.
"""

from __future__ import annotations

from kernelevolve import errors
from kernelevolve.records import Node, Selection, Status
from kernelevolve.search.tree import Tree

KINDS = ("parent", "siblings", "both", "nothing")


def history(tree: Tree, selection: Selection) -> tuple[Node, ...]:
    """The nodes that the selection's memory admits, oldest first.

    A draft has no parents: its siblings are the other drafts. Raises UnknownNameError for another kind of memory.
    """
    if selection.memory not in KINDS:
        raise errors.UnknownNameError("memory operator", selection.memory, list(KINDS))
    seen: dict[int, Node] = {}
    if selection.memory in ("parent", "both"):
        for parent in selection.parents:
            seen |= {n.number: n for n in [*tree.ancestors(parent), tree.node(parent)]}
    if selection.memory in ("siblings", "both"):
        siblings = tree.drafts if selection.is_draft else [c for p in selection.parents for c in tree.children(p)]
        seen |= {n.number: n for n in siblings}
    return tuple(seen[number] for number in sorted(seen) if seen[number].status is not Status.LOST)
