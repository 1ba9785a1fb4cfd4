"""The one table that every view starts from: a row per node, as plain columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import pandas as pd

from kernelevolve.records import Interval, Node
from kernelevolve.search.fitness import score
from kernelevolve.views.palette import outcome

COLUMNS = (
    "node", "parents", "depth", "stage", "operator", "move", "language", "status", "outcome", "ranked", "measured",
    "fitness", "score", "reference", "ratio", "low", "high", "eager_ratio", "compile_ratio", "median_ms", "build_s",
    "evaluate_s", "tokens", "cost_usd", "rationale", "reason", "detail", "time",
)


class Nodes(Protocol):
    """Whatever has nodes: a study's tree or its log. What it refuted or vetoed is never called best."""

    @property
    def nodes(self) -> Any:
        """A sequence of nodes, or a mapping of numbers to nodes."""


class HasTree(Protocol):
    """A study."""

    @property
    def tree(self) -> Any:
        """Its `Nodes`."""


Source = Iterable[Node] | Nodes | HasTree


def nodes_of(source: Source) -> list[Node]:
    """The nodes of a list or a study in the order of their numbers, the problem itself (number 0) left out."""
    found: Any = getattr(source, "tree", source)
    found = getattr(found, "nodes", found)
    found = found.values() if isinstance(found, Mapping) else found
    return sorted((n for n in found if n.number > 0), key=lambda n: n.number)


def excluded(source: Source) -> set[int]:
    """Numbers that may not be called best: refuted when measured again, or vetoed by the engineer."""
    found: Any = getattr(source, "tree", source)
    numbers = {*getattr(found, "refuted", ()), *getattr(found, "vetoed", ())}
    for act in getattr(found, "acts", ()):
        if act.name == "veto":
            change = numbers.add if act.arguments.get("on", True) else numbers.discard
            change(act.arguments["number"])
    return numbers


def frame(source: Source) -> pd.DataFrame:
    """One row per node in the order of their numbers; columns as in COLUMNS.

    `ratio`, `low` and `high` are t_reference / t_candidate against the fastest baseline and its 95 % interval,
    NaN where nothing was timed. `ranked` is true for what `ranked_nodes` holds. `score` ranks: see `score`.
    """
    ordered = nodes_of(source)
    good = {n.number for n in ranked_nodes(source)}
    by_number = {n.number: n for n in ordered}
    depth: dict[int, int] = {}
    rows = []
    for node in ordered:
        depth[node.number] = 1 + max((depth.get(p, 0) for p in node.parents), default=0)
        rows.append(_row(node, by_number, depth[node.number], good))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def stage(node: Node, by_number: dict[int, Node]) -> str:
    """"draft" without parents, "debug" when a parent does not work, else "improve"."""
    parents = [by_number[p] for p in node.parents if p in by_number]
    if not parents:
        return "draft"
    return "improve" if all(p.result.correct for p in parents) else "debug"


def ranked(node: Node) -> bool:
    """Whether the node may be ranked: correct, with a finite, positive fitness."""
    return node.result.correct and math.isfinite(node.fitness) and node.fitness > 0


def ranked_nodes(source: Source) -> list[Node]:
    """Nodes that may be called best, best first, the earlier of two equals first.

    Refuted and vetoed ones are left out. Measured and modelled times are never ranked together: where one node is
    measured, the modelled ones are left out.
    """
    out = excluded(source)
    good = [n for n in nodes_of(source) if ranked(n) and n.number not in out]
    measured = [n for n in good if n.result.measured]
    return sorted(measured or good, key=lambda n: (-score(n), n.number))


def best(source: Source) -> Node | None:
    """The fastest of the ranked nodes, by `score`, the earliest on a tie; None when there is none."""
    return next(iter(ranked_nodes(source)), None)


def rows_of(data: pd.DataFrame) -> Iterator[Any]:
    """The rows of `data` as named tuples; typed loosely because their columns are not known to the type checker."""
    return data.itertuples(index=False)


def _row(node: Node, by_number: dict[int, Node], depth: int, good: Collection[int]) -> dict[str, Any]:
    result, proposal = node.result, node.proposal
    own = next((t for t in result.timings if t.name == "candidate" and t.samples_ms), None)
    # As the search measured it and chose by it; what fresh processes said is the headline's to tell.
    ratio = min(result.ratios.values(), key=lambda i: i.value, default=Interval(math.nan, math.nan, math.nan))

    def against(name: str) -> float:
        return result.ratios[name].value if name in result.ratios else math.nan

    return {
        "node": node.number, "parents": node.parents, "depth": depth, "stage": stage(node, by_number),
        "operator": proposal.operator, "move": proposal.move, "language": proposal.language,
        "status": result.status.value, "outcome": outcome(result.status),
        "ranked": node.number in good,
        "measured": result.measured, "fitness": node.fitness, "score": score(node), "reference": result.reference,
        "ratio": ratio.value, "low": ratio.low, "high": ratio.high,
        "eager_ratio": against("eager"), "compile_ratio": against("compile"),
        "median_ms": own.median_ms if own else math.nan, "build_s": result.stage_s.get("build", math.nan),
        "evaluate_s": sum(result.stage_s.values()), "tokens": proposal.tokens_in + proposal.tokens_out,
        "cost_usd": proposal.cost_usd, "rationale": proposal.rationale,
        "reason": proposal.selection.reason if proposal.selection else "",
        "detail": result.detail or proposal.failure_detail, "time": node.time,
    }
