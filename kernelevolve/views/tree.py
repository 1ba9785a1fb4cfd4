"""The search tree: a vertex per node, placed by step and lineage, coloured by fitness, shaped by outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from kernelevolve.views.frame import Source, frame, rows_of
from kernelevolve.views.html import hover, number, plural
from kernelevolve.views.palette import DETAILED, GREY, OUTCOMES, SYMBOLS, axis, blank, layout, steps
from kernelevolve.views.requirement import require

ROOT = 0
"""Number of the problem itself, the parent of every draft."""


def tree_data(source: Source) -> pd.DataFrame:
    """`frame(source)` with a place: x (node number), y (lane of its lineage), best_path (on the way to the best).

    The layout is tidy: leaves take one lane each in depth-first order over first parents, an inner node sits
    at the mean of its children's lanes, so no two lineages overlap.
    """
    data = frame(source)
    parents = {row.node: row.parents for row in rows_of(data)}
    first = {n: next((p for p in ps if p in parents), ROOT) for n, ps in parents.items()}
    lane = _lanes(first)
    data["x"] = data["node"]
    data["y"] = [lane[n] for n in data["node"]]
    path: set[int] = set()
    if data["ranked"].any():
        good = data[data["ranked"].astype(bool)]
        step = int(good["node"].to_numpy()[good["score"].to_numpy(dtype=float).argmax()])
        while step != ROOT and step not in path:
            path.add(step)
            step = first[step]
    data["best_path"] = [n in path for n in data["node"]]
    data.attrs["root_y"] = lane[ROOT]
    return data


def tree_figure(data: pd.DataFrame, *, title: str = "Search tree") -> Any:
    """Vertices by step (x) and lineage (y); failures are small and hollow; second parents are dotted edges."""
    go = require("plotly.graph_objects")
    lanes = data["y"].nunique() if len(data) else 1
    figure = go.Figure(layout=layout(title=title, alt=tree_caption(data), legend=True,
                                     height=int(np.clip(160 + 22 * lanes, 380, 900))))
    if data.empty:
        return blank(figure, "no candidate yet")
    for trace in _edges(go, data):
        figure.add_trace(trace)
    figure.add_trace(go.Scatter(
        x=[ROOT], y=[data.attrs.get("root_y", 0.0)], mode="markers", name="PyTorch reference", showlegend=False,
        hovertext=["PyTorch reference"], hoverinfo="text",
        marker={"symbol": "square", "size": 12, "color": "#767676"},
    ))
    scale = _colour_scale(data)
    for name in OUTCOMES:
        part = data[data["outcome"] == name]
        if not part.empty:
            figure.add_trace(_vertices(go, part, name, scale, detailed=len(data) <= DETAILED))
    last = float(data["x"].max())
    best = data[data["best_path"]].sort_values("node").tail(1)
    for row in rows_of(best):
        figure.add_annotation(x=row.x, y=row.y, text=f"node {row.node}: {number(row.ratio)}×", showarrow=True,
                              arrowhead=0, arrowwidth=1, ax=0, ay=-28)
    figure.update_xaxes(steps(int(last), range=[-0.04 * last - 0.3, 1.04 * last + 0.3]))
    figure.update_yaxes(axis("lineage", showticklabels=False, showgrid=False))
    return figure


def tree(source: Source, *, title: str = "Search tree") -> Any:
    """The figure straight from nodes or a study."""
    return tree_figure(tree_data(source), title=title)


def tree_caption(data: pd.DataFrame) -> str:
    """What the figure shows, in words."""
    if data.empty:
        return "Search tree: no candidate yet."
    drafts = int((data["stage"] == "draft").sum())
    path = data.loc[data["best_path"], "node"].tolist()
    way = f"the way to the best is {' → '.join(map(str, path))}" if path else "none is correct and timed"
    candidates, lineages = plural(len(data), "candidate"), plural(drafts, "lineage")
    return f"Search tree of {candidates} in {lineages}, deepest at depth {int(data['depth'].max())}; {way}."


def _lanes(first: dict[int, int]) -> dict[int, float]:
    """Lane of every node, the root included, from each node's first parent."""
    children: dict[int, list[int]] = {ROOT: []}
    for n in sorted(first):
        children.setdefault(first[n], []).append(n)
    lane: dict[int, float] = {}
    next_lane, stack = 0, [(ROOT, False)]
    while stack:
        n, done = stack.pop()
        below = children.get(n, [])
        if done:
            lane[n] = sum(lane[c] for c in below) / len(below)
        elif below:
            stack.append((n, True))
            stack.extend((c, False) for c in reversed(below))
        else:
            lane[n] = float(next_lane)
            next_lane += 1
    return lane


def _edges(go: Any, data: pd.DataFrame) -> list[Any]:
    place = {row.node: (row.x, row.y) for row in rows_of(data)}
    place[ROOT] = (ROOT, data.attrs.get("root_y", 0.0))
    best = set(data.loc[data["best_path"], "node"])
    kinds: dict[str, tuple[list[float | None], list[float | None]]] = {k: ([], []) for k in ("plain", "second", "best")}
    for row in rows_of(data):
        known = [p for p in row.parents if p in place] or [ROOT]
        for rank, parent in enumerate(known):
            on_path = rank == 0 and row.node in best
            xs, ys = kinds["best" if on_path else "second" if rank else "plain"]
            (x0, y0), (x1, y1) = place[parent], place[row.node]
            xs += [x0, x1, None]
            ys += [y0, y1, None]
    style = {"plain": {"width": 1, "color": "rgba(128,128,128,0.5)"},
             "second": {"width": 1, "color": "rgba(128,128,128,0.7)", "dash": "dot"},
             "best": {"width": 3, "color": "#767676"}}
    return [go.Scatter(x=xs, y=ys, mode="lines", line=style[k], hoverinfo="skip", showlegend=False)
            for k, (xs, ys) in kinds.items() if xs]


def _colour_scale(data: pd.DataFrame) -> dict[str, Any]:
    """Viridis over log10 of the ratio, with ticks that read as ratios."""
    values = data.loc[data["ranked"].astype(bool), "fitness"].to_numpy(dtype=float)
    low, high = (float(np.log10(values.min())), float(np.log10(values.max()))) if len(values) else (0.0, 0.0)
    if high - low < 0.05:
        low, high = low - 0.05, high + 0.05
    ticks = np.linspace(low, high, 5)
    bar = {"title": {"text": "× the fastest baseline", "side": "right"}, "tickvals": ticks.tolist(),
           "ticktext": [f"{number(10**t)}×" for t in ticks], "thickness": 12, "outlinewidth": 0}
    return {"colorscale": "Viridis", "cmin": low, "cmax": high, "colorbar": bar}


def _vertices(go: Any, part: pd.DataFrame, name: str, scale: dict[str, Any], *, detailed: bool) -> Any:
    text = [] if not detailed else [
        f"<b>node {row.node}</b> · {row.stage} · {hover(row.move)}<br>{row.status}"
        + (f" · {number(row.ratio)}× [{number(row.low)}, {number(row.high)}]" if row.ranked else "")
        + f"<br>chosen because: {hover(row.reason, lines=4)}<br>{hover(row.rationale or row.detail, lines=4)}"
        for row in rows_of(part)
    ]
    told = {"hovertext": text, "hoverinfo": "text"} if detailed else {"hovertemplate": f"node %{{x}} · {name}"}
    marker: dict[str, Any] = {"symbol": SYMBOLS[name], "size": 8, "color": GREY, "line": {"width": 1.2, "color": GREY}}
    if name == "correct":
        good = part["fitness"].where(part["ranked"].astype(bool)).to_numpy(dtype=float)
        finite = np.isfinite(good) & (good > 0)
        colour = np.where(finite, np.log10(np.where(finite, good, 1.0)), scale["cmin"])
        marker = {**scale, "symbol": SYMBOLS[name], "size": 14, "color": colour,
                  "line": {"width": 1, "color": "#767676"}}
    return go.Scatter(x=part["x"], y=part["y"], mode="markers", name=name, customdata=part["node"], marker=marker,
                      **told)
