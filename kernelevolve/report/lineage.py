"""How the best came about: each step of its lineage with its difference, and what that edit bought."""

from __future__ import annotations

import difflib
import itertools

from kernelevolve.records import Node
from kernelevolve.report.headline import best_of
from kernelevolve.store.log import StudyLog
from kernelevolve.views import html
from kernelevolve.views.frame import ranked
from kernelevolve.views.html import Html, escape, number

LINES = 400
"""Longest diff shown per step; the whole sources are in the workspace."""


def lineage_of(study: StudyLog, number_: int) -> list[Node]:
    """The node's ancestors over first parents, oldest first, the node itself last."""
    path: list[Node] = []
    step: int | None = number_
    while step in study.nodes and all(n.number != step for n in path):
        node = study.nodes[step]
        path.append(node)
        step = node.parents[0] if node.parents else None
    return path[::-1]


def diff_lines(before: Node, after: Node) -> list[str]:
    """Unified diff of two candidates' sources."""
    lines = list(difflib.unified_diff(
        before.source.splitlines(), after.source.splitlines(), f"node {before.number}", f"node {after.number}",
        lineterm="", n=2))
    return lines if len(lines) <= LINES else [*lines[:LINES], f"@@ {len(lines) - LINES} more lines @@"]


def lineage(study: StudyLog) -> Html:
    """The best's lineage: move, reason, ratio before and after, diff. The edit that bought most is open."""
    best = best_of(study)
    if best is None:
        return Html("<p class='soft'>No lineage: nothing correct yet.</p>", "no lineage")
    path = lineage_of(study, best.number)
    gains = [_gain(a, b) for a, b in itertools.pairwise(path)]
    largest = max((g for g in gains if g is not None), default=None)
    parts, text = [_draft(path[0])], [f"node {path[0].number}: {_worth(path[0])}"]
    for before, after, gain in zip(path, path[1:], gains, strict=False):
        bought = f"{number(gain)}× the speed of its parent" if gain is not None else _worth(after)
        reason = after.proposal.selection.reason if after.proposal.selection else ""
        second = f", with node {', '.join(map(str, after.parents[1:]))}" if len(after.parents) > 1 else ""
        diff = html.diff(diff_lines(before, after)).html if before.source != after.source else "<p>Same source.</p>"
        state = " open" if gain is not None and gain == largest else ""
        parts.append(
            f"<details{state}><summary><b>node {after.number}</b> · {escape(after.proposal.move or 'edit')} from node "
            f"{before.number}{second}: {escape(bought)} → {escape(_worth(after))}</summary>"
            f"<p>{escape(after.proposal.rationale)}</p>"
            f"<p class='soft'>Chosen because: {escape(reason or 'not recorded')}</p>{diff}</details>")
        text.append(f"node {after.number} ({after.proposal.move}): {bought}")
    return Html("".join(parts), "\n".join(text))


def _draft(node: Node) -> str:
    return (f"<p><b>node {node.number}</b> · {escape(node.proposal.move or 'draft')}: {escape(_worth(node))}. "
            f"{escape(node.proposal.rationale)}</p>")


def _worth(node: Node) -> str:
    return f"{number(node.fitness)}× the fastest baseline" if ranked(node) else node.status.value


def _gain(before: Node, after: Node) -> float | None:
    return after.fitness / before.fitness if ranked(before) and ranked(after) else None
