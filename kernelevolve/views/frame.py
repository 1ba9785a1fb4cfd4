"""The one table that every view starts from: a row per node, as plain columns."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import pandas as pd

from kernelevolve.records import Interval, Node
from kernelevolve.views.palette import outcome

COLUMNS = (
    "node", "parents", "depth", "stage", "operator", "move", "language", "status", "outcome", "ranked", "measured",
    "fitness", "score", "reference", "ratio", "low", "high", "eager_ratio", "compile_ratio", "median_ms", "build_s",
    "evaluate_s", "tokens", "cost_usd", "rationale", "reason", "detail", "time",
)


class Nodes(Protocol):
    """Whatever has nodes by number, such as a study or its log; `refuted`, where it has it, holds numbers."""

    @property
    def nodes(self) -> Mapping[int, Node]:
        """By number."""


def nodes_of(source: Iterable[Node] | Nodes) -> list[Node]:
    """The nodes of a list or a study in the order of their numbers, the problem itself (number 0) left out."""
    found: Any = source.nodes if hasattr(source, "nodes") else source
    found = found.values() if isinstance(found, Mapping) else found
    return sorted((n for n in found if n.number > 0), key=lambda n: n.number)


def frame(source: Iterable[Node] | Nodes) -> pd.DataFrame:
    """One row per node in the order of their numbers; columns as in COLUMNS.

    `ratio`, `low` and `high` are t_reference / t_candidate against the fastest baseline and its 95 % interval,
    NaN where nothing was timed. `ranked` is true for what may be called best: correct, measured, finite, and not
    refuted when measured again. `score` ranks: see `score`.
    """
    ordered, refuted = nodes_of(source), getattr(source, "refuted", ())
    by_number = {n.number: n for n in ordered}
    depth: dict[int, int] = {}
    rows = []
    for node in ordered:
        depth[node.number] = 1 + max((depth.get(p, 0) for p in node.parents), default=-1)
        rows.append(_row(node, by_number, depth[node.number], refuted))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def stage(node: Node, by_number: dict[int, Node]) -> str:
    """"draft" without parents, "debug" when the first parent does not work, else "improve"."""
    if not node.parents:
        return "draft"
    first = by_number.get(node.parents[0])
    return "debug" if first is not None and not first.result.correct else "improve"


def ranked(node: Node) -> bool:
    """Whether the node may be called best: correct, measured and with a finite, positive fitness."""
    return node.result.correct and node.result.measured and math.isfinite(node.fitness) and node.fitness > 0


def best(source: Iterable[Node] | Nodes) -> Node | None:
    """The fastest of the ranked nodes, by `score`, the earliest on a tie; None when there is none."""
    refuted = getattr(source, "refuted", ())
    candidates = (n for n in nodes_of(source) if ranked(n) and n.number not in refuted)
    return max(candidates, key=lambda n: (score(n), -n.number), default=None)


def score(node: Node) -> float:
    """What ranks a node: the median of its re-measurements in fresh processes where it has some, else its fitness."""
    again = [c.value for c in node.result.confirmations]
    return float(statistics.median(again)) if again else node.fitness


def rows_of(data: pd.DataFrame) -> Iterator[Any]:
    """The rows of `data` as named tuples; typed loosely because their columns are not known to the type checker."""
    return data.itertuples(index=False)


def _row(node: Node, by_number: dict[int, Node], depth: int, refuted: Collection[int]) -> dict[str, Any]:
    result, proposal = node.result, node.proposal
    own = next((t for t in result.timings if t.name == "candidate" and t.samples_ms), None)
    ratio = result.ratio or Interval(math.nan, math.nan, math.nan)

    def against(name: str) -> float:
        return result.ratios[name].value if name in result.ratios else math.nan

    return {
        "node": node.number, "parents": node.parents, "depth": depth, "stage": stage(node, by_number),
        "operator": proposal.operator, "move": proposal.move, "language": proposal.language,
        "status": result.status.value, "outcome": outcome(result.status), "ranked": ranked(node) and node.number not in refuted,
        "measured": result.measured, "fitness": node.fitness, "score": score(node), "reference": result.reference,
        "ratio": ratio.value, "low": ratio.low, "high": ratio.high,
        "eager_ratio": against("eager"), "compile_ratio": against("compile"),
        "median_ms": own.median_ms if own else math.nan, "build_s": result.stage_s.get("build", math.nan),
        "evaluate_s": sum(result.stage_s.values()), "tokens": proposal.tokens_in + proposal.tokens_out,
        "cost_usd": proposal.cost_usd, "rationale": proposal.rationale,
        "reason": proposal.selection.reason if proposal.selection else "",
        "detail": result.detail or proposal.failure_detail, "time": node.time,
    }
