"""Roofline: what the candidate reaches of what the machine can do, from the profile's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from kernelevolve.records import Node
from kernelevolve.views.frame import rows_of
from kernelevolve.views.html import hover, number
from kernelevolve.views.palette import BLUE, ORANGE, axis, blank, layout
from kernelevolve.views.requirement import require

COLUMNS = ["node", "name", "intensity", "gflops", "gbytes_s", "peak_gflops", "peak_gbytes_s"]


def roofline_data(nodes: Sequence[Node], facts: Mapping[str, float], *, bytes_min: int, flops: int) -> pd.DataFrame:
    """One row per timed side: intensity (FLOP per byte), gflops and gbytes_s reached, and the machine's peaks.

    Peaks are those that the node's profile compared with (a working set that fits a cache has the cache's), else the
    machine's own in `facts`: "fp32_gflops" (10^9 FLOP/s) and "copy_gb_s" (10^9 bytes/s).
    `bytes_min` and `flops` are the problem's; the rates are therefore lower bounds for a candidate that does more.
    """
    rows = []
    for node in nodes:
        part = node.result.profile.get("roofline") or {}
        compute, memory = (part.get(mine) or facts.get(fact) or math.nan
                           for mine, fact in (("peak_gflops", "fp32_gflops"), ("peak_gb_s", "copy_gb_s")))
        for timing in node.result.timings:
            seconds = timing.median_ms / 1e3 if timing.samples_ms else math.nan
            if bytes_min > 0 and seconds > 0:
                name = f"node {node.number}" if timing.name == "candidate" else timing.name
                rows.append((node.number, name, flops / bytes_min, flops / seconds / 1e9, bytes_min / seconds / 1e9,
                             float(compute), float(memory)))
    return pd.DataFrame(rows, columns=COLUMNS)


def roofline_figure(data: pd.DataFrame, *, title: str = "Roofline") -> Any:
    """Rate against intensity with the roof; a bar of bandwidth when the problem counts no floating-point operations."""
    go = require("plotly.graph_objects")
    figure = go.Figure(layout=layout(title=title, alt=roofline_caption(data)))
    if data.empty or not (data["peak_gbytes_s"] > 0).any():
        return blank(figure, "no measured peaks or no bytes known: no roofline")
    figure.update_layout(showlegend=False)
    colours = [BLUE if str(n).startswith("node ") else ORANGE for n in data["name"]]
    labels = [hover(str(n)) for n in data["name"]]
    peak, fastest = float(data["peak_gbytes_s"].iloc[0]), float(data["gbytes_s"].max())
    if not (data["intensity"] > 0).any():
        figure.add_trace(go.Bar(orientation="h", y=labels, x=data["gbytes_s"], marker={"color": colours},
                                text=[f" {number(100 * v / peak)} %" for v in data["gbytes_s"]], textposition="outside",
                                cliponaxis=False, hovertemplate="%{y}: %{x:.3g} GB/s<extra></extra>"))
        figure.add_vline(x=peak, line={"dash": "dash", "color": "#767676"}, annotation_text="measured peak bandwidth",
                         annotation_position="bottom left")
        figure.update_layout(height=150 + 46 * len(data), bargap=0.4)
        figure.update_xaxes(axis("GB/s (least bytes / median time)", range=[0, 1.15 * max(peak, fastest)]))
        figure.update_yaxes(axis("", autorange="reversed", showgrid=False, ticksuffix="  "))
        return figure
    x = np.geomspace(min(0.01, data["intensity"].min() / 4), max(1000.0, data["intensity"].max() * 4), 100)
    roof = np.minimum(x * peak, np.nan_to_num(data["peak_gflops"].iloc[0], nan=np.inf))
    figure.add_trace(go.Scatter(x=x, y=roof, mode="lines", name="measured roof",
                                line={"color": "#767676", "width": 2}))
    figure.add_trace(go.Scatter(x=data["intensity"], y=data["gflops"], mode="markers+text", text=labels,
                                showlegend=False, textposition="middle right", marker={"size": 11, "color": colours},
                                hovertemplate="%{text}: %{y:.3g} GFLOP/s<extra></extra>"))
    figure.update_xaxes(axis("FLOP per byte", type="log", dtick=1))
    figure.update_yaxes(axis("GFLOP/s", type="log", dtick=1))
    return figure


def roofline_caption(data: pd.DataFrame) -> str:
    """What the figure shows, in words."""
    if data.empty:
        return "Roofline: nothing timed, or the problem's bytes are unknown."
    parts = [f"{row.name} {number(row.gbytes_s)} GB/s"
             + (f" and {number(row.gflops)} GFLOP/s" if row.gflops > 0 else "") for row in rows_of(data)]
    return f"Roofline: {'; '.join(parts)}; measured peak bandwidth {number(float(data['peak_gbytes_s'].iloc[0]))} GB/s."
