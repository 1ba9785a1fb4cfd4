"""What went wrong, counted by status, each with one example."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kernelevolve.views.frame import Source, frame, rows_of
from kernelevolve.views.html import Html, clip, hover, table
from kernelevolve.views.palette import COLOURS, axis, blank, layout
from kernelevolve.views.requirement import require


def failures_data(source: Source) -> pd.DataFrame:
    """One row per status that occurred: status, outcome, n, share (of all nodes), nodes (numbers), example (detail)."""
    data = frame(source)
    rows = [
        (status, part["outcome"].iloc[0], len(part), len(part) / len(data), tuple(part["node"]),
         next((d for d in part["detail"] if d), ""))
        for status, part in data.groupby("status", sort=False)
    ]
    counts = pd.DataFrame(rows, columns=["status", "outcome", "n", "share", "nodes", "example"])
    return counts.sort_values(["n", "status"], ascending=[False, True]).reset_index(drop=True)


def failures_figure(data: pd.DataFrame, *, title: str = "What became of the candidates") -> Any:
    """A bar per status with its count written at its end; correct ones included, so that the bars add up."""
    go = require("plotly.graph_objects")
    figure = go.Figure(layout=layout(title=title, alt=failures_caption(data), height=130 + 30 * max(len(data), 3),
                                     bargap=0.35))
    if data.empty:
        return blank(figure, "no candidate yet")
    figure.add_trace(go.Bar(
        orientation="h", y=data["status"], x=data["n"], text=[f" {n}" for n in data["n"]], textposition="outside",
        cliponaxis=False, marker={"color": [COLOURS[o] for o in data["outcome"]]}, hoverinfo="text",
        hovertext=[f"<b>{row.status}</b>: {row.n}<br>{hover(row.example, lines=4)}" for row in rows_of(data)]))
    figure.update_xaxes(axis("candidates", rangemode="tozero", dtick=max(1, int(data["n"].max()) // 6)))
    figure.update_yaxes(axis("", autorange="reversed", showgrid=False, ticksuffix="  "))
    return figure


def failures(source: Source, *, title: str = "What became of the candidates") -> Any:
    """The figure straight from nodes or a study."""
    return failures_figure(failures_data(source), title=title)


def failures_table(source: Source, *, limit: int = 200) -> Html:
    """Every candidate that is not correct, with what was expected and what came."""
    everything = frame(source)
    total, data = len(everything), everything[everything["outcome"] != "correct"]
    if data.empty:
        return Html("<p>Every candidate was correct.</p>", "Every candidate was correct.")
    columns = ("node", "move", "status", "what was expected, what came")
    rows = [(r.node, r.move or "–", r.status, clip(r.detail or "–", 600)) for r in rows_of(data.head(limit))]
    caption = f"{len(rows)} of {len(data)} candidates that are not correct, of {total} in all."
    return Html(table(columns, rows, numeric=("node",), caption=caption),
                data[["node", "move", "status", "detail"]].to_string(index=False))


def failures_caption(data: pd.DataFrame) -> str:
    """What the figure shows, in words."""
    if data.empty:
        return "Candidates by status: none yet."
    return ("Candidates by status: " + ", ".join(f"{row.n} {row.status}" for row in rows_of(data))
            + f"; {int(data['n'].sum())} in all.")
