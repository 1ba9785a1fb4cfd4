"""Bringing a study back from its journal: the tree, what the engineer said, and what was under way when it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelevolve.accounts import Run
from kernelevolve.records import Node, Proposal, Result, Status, from_dict
from kernelevolve.search import Tree
from kernelevolve.store import StudyLog
from kernelevolve.store.journal import utc_now

if TYPE_CHECKING:
    from kernelevolve.study import Study


def replay(study: Study, log: StudyLog) -> None:
    """Feed a fresh study every node of the log, and record the lost ones under their numbers."""
    lost = set(log.lost)
    for number in sorted({*log.nodes, *lost}):
        if number in lost:
            study.record_lost(_what_is_known(log, number), "the search ended while it was under way")
        else:
            study.learn(log.nodes[number], log.keys.get(number))
    study.tree.refuted |= log.refuted
    study.runs = [from_dict(Run, end) for end in log.ends]
    for act in log.acts:
        apply(study.tree, act.name, act.arguments)


def apply(tree: Tree, act: str, arguments: dict[str, Any]) -> None:
    """What an act of the engineer does to the tree."""
    number = arguments.get("number")
    if act in ("pin", "veto") and number is not None:
        mine, other = (tree.pinned, tree.vetoed) if act == "pin" else (tree.vetoed, tree.pinned)
        if arguments.get("on", True):
            mine.add(number)
            other.discard(number)
        else:
            mine.discard(number)
    elif act == "hint" and number is not None:
        tree.hints.setdefault(number, []).append(arguments["text"])


def lost_node(number: int, proposal: Proposal, why: str) -> Node:
    """The node of a candidate of which nobody knows whether it is right."""
    return Node(number, Result(proposal, Status.LOST, why), 0.0, utc_now())


def _what_is_known(log: StudyLog, number: int) -> Proposal:
    """The proposal when it was written, else an empty one with the parents that were selected."""
    selection = log.asks.get(number)
    parents = tuple(p for p in (selection.parents if selection else ()) if p < number)
    return log.proposals.get(number) or Proposal("", "", "", parents=parents, selection=selection)
