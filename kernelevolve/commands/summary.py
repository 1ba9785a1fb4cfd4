"""A study in one row: what a run, a list or a script wants to know."""

from __future__ import annotations

from typing import Any

from kernelevolve.records import Interval, to_dict
from kernelevolve.store import StudyLog
from kernelevolve.views.frame import best, nodes_of, ranked
from kernelevolve.views.verdict import confirmation, verdict

COLUMNS = ("problem", "steps", "× eager [95 %]", "× compile [95 %]", "× fastest baseline", "verdict", "confirmed",
           "best", "study")
NUMERIC = ("steps", "× eager [95 %]", "× compile [95 %]", "× fastest baseline")


def summarise(study: StudyLog) -> dict[str, Any]:
    """The study's state as JSON values: counts, the best node and its ratios with intervals and verdict."""
    nodes, top = nodes_of(study), best(study)
    found: dict[str, Any] = {
        "study": study.name, "problem": study.problem.id, "operator": study.header.get("operator"),
        "policy": (study.header.get("policy") or {}).get("name"), "platform": study.header.get("platform"),
        "rules": study.header.get("rules"), "nodes": len(nodes), "ranked": sum(map(ranked, nodes)),
        "begun": study.header.get("time"), "last": study.last_time,
        "ended": study.ends[-1]["reason"] if study.ends else None, "best": None,
    }
    if top is not None:
        result = top.result
        found |= {
            "best": top.number, "ratios": to_dict(result.final), "reference": result.reference,
            "verdict": verdict(result.ratio, result.noise_floor), "noise_floor": result.noise_floor,
            "confirmed": confirmation(result.confirmations, result.noise_floor),
            "confirmations": to_dict(result.confirmations), "measured": result.measured,
        }
    return found


def row(summary: dict[str, Any]) -> tuple[Any, ...]:
    """Cells for COLUMNS."""
    if summary.get("error"):
        return (summary["problem"], "–", "–", "–", "–", "error", summary["error"], "–", "–")
    if summary["best"] is None:
        return (summary["problem"], summary["nodes"], "–", "–", "–", "nothing correct", "–", "–", summary["study"])
    return (summary["problem"], summary["nodes"], _ratio(summary, "eager"), _ratio(summary, "compile"),
            f"{_ratio(summary, summary['reference'])} {summary['reference']}", summary["verdict"],
            _short(summary["confirmations"], summary["noise_floor"]), f"node {summary['best']}", summary["study"])


def _ratio(summary: dict[str, Any], baseline: str) -> str:
    from kernelevolve.views.html import ratio

    interval = summary["ratios"].get(baseline)
    return ratio(Interval(**interval) if interval else None)


def _short(confirmations: list[dict[str, Any]], floor: float) -> str:
    won = sum(verdict(Interval(**c), floor) == "win" for c in confirmations)
    return f"{won} of {len(confirmations)}" if confirmations else "–"
