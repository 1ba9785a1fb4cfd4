"""Distribution of the samples of one interleaved session: the candidate against every baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kernelevolve.records import Result, Timing
from kernelevolve.views.html import hover, number
from kernelevolve.views.palette import BLUE, GREEN, ORANGE, PURPLE, SKY, axis, blank, layout
from kernelevolve.views.requirement import require

DRAWN = 400
"""Samples drawn as points per side; the boxes are computed from all of them."""


def timing_data(source: Result | Sequence[Timing]) -> pd.DataFrame:
    """One row per sample: side, sample_ms, round, inner_repeats, in the order taken."""
    timings = source.timings if isinstance(source, Result) else source
    rows = [(t.name, float(ms), int(r), t.inner_repeats)
            for t in timings for ms, r in zip(t.samples_ms, _rounds(t), strict=True)]
    return pd.DataFrame(rows, columns=["side", "sample_ms", "round", "inner_repeats"])


def timing_figure(data: pd.DataFrame, *, title: str = "Samples, candidate against baselines") -> Any:
    """A box over all samples and a strip of points per side, the candidate first."""
    go = require("plotly.graph_objects")
    good = data[np.isfinite(data["sample_ms"].to_numpy(dtype=float))]
    sides = _sides(good)
    figure = go.Figure(layout=layout(title=title, alt=timing_caption(data), height=150 + 72 * max(len(sides), 2)))
    if good.empty:
        return blank(figure, "nothing was timed")
    rng = np.random.default_rng(0)
    labels: list[str] = []
    colours = [GREEN, ORANGE, PURPLE, SKY]
    for i, side in enumerate(sides):
        samples = good.loc[good["side"] == side, "sample_ms"].to_numpy(dtype=float)
        colour = BLUE if side == "candidate" else colours[(i - 1) % len(colours)]
        low, q1, median, q3, high = np.percentile(samples, [5, 25, 50, 75, 95])
        figure.add_trace(go.Box(
            orientation="h", y=[i], name=hover(side), q1=[q1], median=[median], q3=[q3], lowerfence=[low],
            upperfence=[high], line={"color": colour, "width": 1.6}, width=0.42, hoverinfo="skip"))
        drawn = samples[np.linspace(0, len(samples) - 1, min(DRAWN, len(samples))).astype(int)]
        figure.add_trace(go.Scatter(
            x=drawn, y=i + rng.uniform(-0.17, 0.17, len(drawn)), mode="markers", name=hover(side),
            hovertemplate=f"{hover(side)}: %{{x:.4g}} ms<extra></extra>",
            marker={"size": 4, "color": colour, "opacity": 0.45}))
        labels.append(f"<b>{hover(side)}</b>  <br>{number(median)} ms, n = {len(samples)}  ")
    wide = good["sample_ms"].max() > 20 * max(good["sample_ms"].min(), 1e-12)
    figure.update_xaxes(axis("ms per call", type="log" if wide else "linear"))
    figure.update_yaxes(axis("", tickvals=list(range(len(sides))), ticktext=labels,
                             range=[len(sides) - 0.4, -0.6], showgrid=False))
    return figure


def timing(source: Result | Sequence[Timing], *, title: str = "Samples, candidate against baselines") -> Any:
    """The figure straight from a result or timings."""
    return timing_figure(timing_data(source), title=title)


def timing_caption(data: pd.DataFrame) -> str:
    """What the figure shows, in words."""
    if data.empty:
        return "Timing samples: nothing was timed."
    parts = [f"{side}: median {number(part['sample_ms'].median())} ms over {len(part)} samples"
             for side, part in ((s, data[data["side"] == s]) for s in _sides(data))]
    return ("Timing samples of one interleaved session. " + "; ".join(parts)
            + ". Boxes: quartiles; whiskers: 5th and 95th percentile.")


def _sides(data: pd.DataFrame) -> list[str]:
    return sorted(data["side"].unique(), key=lambda s: (s != "candidate", s != "eager", s != "compile", s))


def _rounds(timing: Timing) -> Sequence[int]:
    return timing.rounds if len(timing.rounds) == len(timing.samples_ms) else range(len(timing.samples_ms))
