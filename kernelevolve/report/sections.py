"""The short sections: the title, the best's source, its place on the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelevolve.records import Node
from kernelevolve.report.headline import BASELINE_NAMES, best_of, facts_of, name_machine
from kernelevolve.store.log import StudyLog
from kernelevolve.views import html
from kernelevolve.views.html import Html, escape, ratio, table
from kernelevolve.views.roofline import roofline_data, roofline_figure
from kernelevolve.views.verdict import confirmation, verdict


def title(study: StudyLog) -> Html:
    """What was searched, where, when."""
    when = str(study.last_time or study.header.get("time", ""))[:16].replace("T", " ")
    line = f"Study {study.name} · {name_machine(study)} · {when} UTC"
    return Html(f"<h1>A faster {escape(study.problem.id)}</h1><p class='soft'>{escape(line)}</p>",
                f"A faster {study.problem.id}\n{line}")


def overview(studies: Sequence[StudyLog]) -> Html:
    """Several studies in one table: what was found for each, and how sure that is."""
    rows = []
    for study in studies:
        best = best_of(study)
        if best is None:
            rows.append((study.problem.id, len(study.nodes), "–", "–", "–", "nothing correct", "–"))
            continue
        result = best.result
        rows.append((
            study.problem.id, len(study.nodes), ratio(result.final.get("eager")), ratio(result.final.get("compile")),
            f"{ratio(result.ratio)} {BASELINE_NAMES.get(result.reference, result.reference)}",
            verdict(result.ratio, result.noise_floor), confirmation(result.confirmations, result.noise_floor),
        ))
    columns = ("problem", "candidates", "× eager [95 %]", "× torch.compile [95 %]", "× fastest baseline", "verdict",
               "in fresh processes")
    won = sum(row[5] == "win" for row in rows)
    caption = f"{won} of {len(rows)} operators won against the fastest of their baselines; each has its own part below."
    return Html(f"<h1>Faster kernels for {len(rows)} operators</h1>"
                + table(columns, rows, numeric=columns[1:4], caption=caption), repr(rows))


def source_of(node: Node | None) -> Html:
    """A candidate's module with what it says about itself."""
    if node is None:
        return Html("<p class='soft'>No candidate is correct yet.</p>", "no candidate is correct yet")
    own = node.proposal.own_kernels
    told = (f"node {node.number}, {node.proposal.language}, written by {node.proposal.operator}: "
            f"{(node.proposal.rationale or 'no rationale').rstrip('.')}. "
            f"{own} kernel{'s' * (own != 1)} of its own per call; {len(node.source.splitlines())} lines.")
    return Html(f"<p>{escape(told)}</p>{html.source(node.source).html}", f"{told}\n\n{node.source}")


def roofline(study: StudyLog) -> Any:
    """The best and its baselines against the machine's measured peaks; a plotly figure."""
    best, problem = best_of(study), study.problem
    data = roofline_data([best] if best else [], facts_of(study), bytes_min=problem.bytes_min, flops=problem.flops)
    return roofline_figure(data)
