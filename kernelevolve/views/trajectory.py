"""Fitness over the search: every attempt as a point, the best so far as a line with its interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from kernelevolve.views.frame import Source, frame, rows_of
from kernelevolve.views.html import hover, number
from kernelevolve.views.palette import BLUE, COLOURS, DETAILED, OUTCOMES, SYMBOLS, axis, blank, layout, steps
from kernelevolve.views.requirement import require


def trajectory_data(source: Source) -> pd.DataFrame:
    """`frame(source)` with the best so far: columns best, best_low, best_high (ratios), best_node (0 for none yet)."""
    data = frame(source)
    rank = data["fitness"].where(data["ranked"].astype(bool), -np.inf).to_numpy(dtype=float)
    holder = np.full(len(data), -1)
    for i in range(len(data)):
        previous = holder[i - 1] if i else -1
        improves = np.isfinite(rank[i]) and (previous < 0 or rank[i] > rank[previous])
        holder[i] = i if improves else previous
    known = holder >= 0
    for column, origin in (("best", "fitness"), ("best_low", "low"), ("best_high", "high")):
        values = data[origin].to_numpy(dtype=float)
        data[column] = np.where(known, values[holder], np.nan) if len(data) else values
    data["best_node"] = np.where(known, data["node"].to_numpy()[holder], 0) if len(data) else data["node"]
    return data


def trajectory_figure(data: pd.DataFrame, *, title: str = "Fitness trajectory") -> Any:
    """Ratio to the fastest baseline on a log axis, 1.0 marked; attempts without a time in a strip below it."""
    go, subplots = require("plotly.graph_objects"), require("plotly.subplots")
    timed = np.isfinite(data["ratio"].to_numpy(dtype=float)) & (data["ratio"].to_numpy(dtype=float) > 0)
    rows = 1 if timed.all() else 2
    figure = subplots.make_subplots(rows=rows, cols=1, shared_xaxes=True, row_heights=[0.8, 0.2][:rows],
                                    vertical_spacing=0.05)
    figure.update_layout(layout(title=title, alt=trajectory_caption(data), height=400 + 50 * rows, legend=True))
    if data.empty:
        return blank(figure, "no candidate yet")
    for name in OUTCOMES:
        for row, part in ((1, data[(data["outcome"] == name) & timed]),
                          (2, data[(data["outcome"] == name) & ~timed])):
            if not part.empty:
                points = _points(go, part, name, strip=row == 2, detailed=len(data) <= DETAILED)
                figure.add_trace(points, row=row, col=1)
    for trace in _best_so_far(go, data):
        figure.add_trace(trace, row=1, col=1)
    figure.add_hline(y=1, line={"dash": "dash", "color": "#767676", "width": 1}, row=1, col=1,
                     annotation_text="fastest baseline", annotation_position="bottom right")
    low, high = _decades(data.loc[timed, ["ratio", "best_low", "best_high"]].to_numpy(dtype=float))
    figure.update_xaxes(axis("", showticklabels=False))
    figure.update_xaxes(steps(len(data), rangemode="tozero", showticklabels=True), row=rows, col=1)
    figure.update_yaxes(axis("× the fastest baseline", type="log", range=[low, high], **_ticks(low, high)),
                        row=1, col=1)
    if rows == 2:
        figure.update_yaxes(axis("", tickvals=[0], ticktext=["not timed"], range=[-1, 1], showgrid=False), row=2, col=1)
    return figure


def trajectory(source: Source, *, title: str = "Fitness trajectory") -> Any:
    """The figure straight from nodes or a study."""
    return trajectory_figure(trajectory_data(source), title=title)


def trajectory_caption(data: pd.DataFrame) -> str:
    """What the figure shows, in words."""
    if data.empty:
        return "Fitness trajectory: no candidate yet."
    n, good = len(data), int(data["ranked"].sum())
    if not good:
        return f"Fitness trajectory of {n} candidates: none is correct and timed yet."
    last = data.iloc[-1]
    return (f"Fitness trajectory of {n} candidates, {good} of them correct and timed: the fastest "
            f"when first measured is node {last['best_node']} at {number(last['best'])} times the fastest baseline "
            f"(95 % interval {number(last['best_low'])} to {number(last['best_high'])}).")


def _points(go: Any, part: pd.DataFrame, name: str, *, strip: bool, detailed: bool) -> Any:
    text = [] if not detailed else [
        f"<b>node {row.node}</b> · {row.status} · {hover(row.stage)} {hover(row.move)}<br>"
        + ("" if strip else f"{number(row.ratio)}× [{number(row.low)}, {number(row.high)}]<br>")
        + hover(row.rationale or row.detail, lines=4)
        for row in rows_of(part)
    ]
    told = {"hovertext": text, "hoverinfo": "text"} if detailed else {"hovertemplate": f"node %{{x}} · {name}"}
    return go.Scatter(
        x=part["node"], y=np.zeros(len(part)) if strip else part["ratio"], mode="markers", name=name,
        legendgroup=name, customdata=part["node"], **told,
        marker={"symbol": SYMBOLS[name], "color": COLOURS[name], "size": 7 if strip else 9,
                "line": {"width": 1.2, "color": COLOURS[name]}},
    )


def _best_so_far(go: Any, data: pd.DataFrame) -> list[Any]:
    part = data[data["best_node"] > 0]
    if part.empty:
        return []
    changes = part["best_node"] != part["best_node"].shift()
    part = pd.concat([part[changes], part.tail(1)])
    step = {"shape": "hv", "width": 0}
    band = {"x": part["node"], "mode": "lines", "hoverinfo": "skip", "line": step, "legendgroup": "best so far",
            "showlegend": False}
    return [
        go.Scatter(y=part["best_low"], **band),
        go.Scatter(y=part["best_high"], fill="tonexty", fillcolor="rgba(0,114,178,0.22)", **band),
        go.Scatter(x=part["node"], y=part["best"], mode="lines", name="best so far (95 % band)",
                   legendgroup="best so far", hoverinfo="skip",
                   line={"shape": "hv", "width": 2, "color": BLUE}),
    ]


def _decades(values: np.ndarray) -> tuple[float, float]:
    """Range of the log axis: all positive finite values and 1.0, with a margin."""
    good = values[np.isfinite(values) & (values > 0)]
    ends = np.log10(np.append(good, 1.0))
    margin = 0.06 + 0.06 * float(np.ptp(ends))
    return float(ends.min()) - margin, float(ends.max()) + margin


def _ticks(low: float, high: float) -> dict[str, Any]:
    """Ticks that read as ratios (0.5, 1, 2, 5 …) rather than powers of ten."""
    every = [m * 10.0**e for e in range(-9, 10) for m in (1, 2, 5)]
    if high - low < 1:
        every = sorted({*every, *(m * 10.0**e for e in range(-9, 10) for m in (1.2, 1.5, 3, 4, 7))})
    if high - low < 0.3:
        every = [round(0.05 * i, 2) for i in range(1, 400)]
    if high - low > 4:
        every = [10.0**e for e in range(-9, 10)]
    ticks = [t for t in every if low <= np.log10(t) <= high]
    return {"tickvals": ticks, "ticktext": [f"{t:g}×" for t in ticks]}
