"""The candidate table: what each candidate was, what became of it and how fast it is."""

from __future__ import annotations

import pandas as pd

from kernelevolve.views.frame import Source, frame, rows_of
from kernelevolve.views.html import Html, clip, escape, number, table

COLUMNS = ("node", "parents", "stage", "move", "status", "ratio [95 %]", "× eager", "× compile", "median ms",
           "build s", "rationale")
_NUMERIC = ("node", "ratio [95 %]", "× eager", "× compile", "median ms", "build s")


def table_data(source: Source, *, order: str = "node") -> pd.DataFrame:
    """`frame(source)` in the order wanted: "node" (as recorded) or "fitness" (fastest first, failures last)."""
    data = frame(source)
    if order == "fitness":
        data = data.sort_values(["ranked", "score", "node"], ascending=[False, False, True])
    return data.reset_index(drop=True)


def table_html(data: pd.DataFrame, *, limit: int = 500) -> Html:
    """The table for a notebook or report. At most `limit` rows are drawn; the caption says n shown of n total."""
    shown = data.head(limit)
    best = data.loc[data["ranked"].astype(bool), "score"].max() if data["ranked"].any() else None
    rows, classes = [], []
    for row in rows_of(shown):
        is_best = bool(row.ranked) and row.score == best
        mark = "\u00a0★" if is_best else ""
        interval = f"{number(row.ratio)}× [{number(row.low)}, {number(row.high)}]" if row.ratio == row.ratio else "–"
        told = row.rationale if row.outcome == "correct" else row.detail or row.rationale
        rows.append((
            row.node, ", ".join(map(str, row.parents)) or "–", row.stage, _breakable(row.move or "–"),
            row.status + mark, interval, number(row.eager_ratio), number(row.compile_ratio), number(row.median_ms),
            number(row.build_s), clip(told),
        ))
        classes.append("best" if is_best else "" if row.outcome == "correct" else "failed")
    text = shown[["node", "stage", "move", "status", "ratio", "eager_ratio", "compile_ratio"]].to_string(index=False)
    return Html(table(COLUMNS, rows, numeric=_NUMERIC, caption=table_caption(data, len(shown)), row_classes=classes),
                text if len(shown) else "no candidate yet")


def candidate_table(source: Source, *, order: str = "node", limit: int = 500) -> Html:
    """The table straight from nodes or a study."""
    return table_html(table_data(source, order=order), limit=limit)


def _breakable(name: str) -> Html:
    """A long move such as "rows.schedule=dynamic" may be broken at its points and signs."""
    text = escape(name)
    for sign in ".=@_":
        text = text.replace(sign, f"{sign}<wbr>")
    return Html(text, name)


def table_caption(data: pd.DataFrame, shown: int) -> str:
    """How many rows are shown and how many of them count."""
    if data.empty:
        return "No candidate yet."
    modelled = int((~data["measured"].astype(bool)).sum())
    return (f"{shown} of {len(data)} candidates shown; {int(data['ranked'].sum())} of {len(data)} are correct and "
            f"ranked{f'; {modelled} with modelled times, never ranked beside measured ones' if modelled else ''}. "
            "★ marks the best. Ratios are baseline time / candidate time.")
