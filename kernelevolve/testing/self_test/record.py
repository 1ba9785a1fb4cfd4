"""What a self-test found: one row per claim, with what was expected and what came. Draws itself; decides nothing."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelevolve.records import to_dict

if TYPE_CHECKING:
    import pandas as pd


class Outcome(enum.StrEnum):
    """What a row says about its claim."""

    PASSED = "passed"
    FAILED = "failed"
    UNPROMISED = "not promised at this level"
    """The isolation level in use does not claim to stop this; not run, and never counted as passed."""
    MEASURED = "measured"
    """A figure without a target."""
    NOT_RUN = "not run"
    """This machine lacks what the row needs; the note says what."""


_SIGNS = {Outcome.PASSED: "✓", Outcome.FAILED: "✗", Outcome.UNPROMISED: "–", Outcome.MEASURED: "·",
          Outcome.NOT_RUN: "–"}
_COLOURS = {Outcome.PASSED: "#0072b2", Outcome.FAILED: "#d55e00"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One claim and what came of it."""

    part: str
    """"villain", "control", "pair", "noise", "kill", "left over", "memory", "overhead" or "respawn"."""
    name: str
    expected: str
    got: str
    outcome: Outcome
    seconds: float = 0.0
    """Wall time that this row took."""
    note: str = ""
    value: float | None = None
    """The figure itself, in `unit`; None where the row is not a figure."""
    unit: str = ""
    n: int = 0
    """How many measurements the figure stands on."""

    @property
    def ok(self) -> bool:
        """False only for a claim that failed."""
        return self.outcome is not Outcome.FAILED


@dataclasses.dataclass(frozen=True, repr=False)
class SelfTest:
    """All rows of one self-test on one machine at one isolation level."""

    platform: str
    isolation: str
    """The level that was used, never a weaker one than asked for."""
    quick: bool
    rows: tuple[Row, ...]
    seconds: float
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The machine: plain JSON values, among them `id`."""

    @property
    def ok(self) -> bool:
        """Whether no claim failed and at least one was tested."""
        return all(row.ok for row in self.rows) and any(row.outcome is Outcome.PASSED for row in self.rows)

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows that failed."""
        return tuple(row for row in self.rows if not row.ok)

    @property
    def headline(self) -> str:
        """One sentence: what passed, what failed, what is not promised."""
        counts = Counter(row.outcome for row in self.rows)
        tested = counts[Outcome.PASSED] + counts[Outcome.FAILED]
        told = f"{counts[Outcome.PASSED]} of {tested} claims passed"
        if counts[Outcome.FAILED]:
            told += f", {counts[Outcome.FAILED]} FAILED: {', '.join(row.name for row in self.failed)}"
        for outcome in (Outcome.UNPROMISED, Outcome.NOT_RUN):
            if counts[outcome]:
                told += f"; {counts[outcome]} {outcome.value}"
        kind = "Quick self-test" if self.quick else "Self-test"
        return f"{kind} on {self.platform}, isolation {self.isolation}, {self.seconds:.0f} s: {told}"

    def frame(self) -> pd.DataFrame:
        """A DataFrame with one line per row: part, name, expected, got, outcome, ok, seconds, note, value, unit, n."""
        import pandas as pd

        columns = [f.name for f in dataclasses.fields(Row)]
        data = pd.DataFrame([to_dict(row) for row in self.rows], columns=columns)
        data.insert(columns.index("outcome") + 1, "ok", [row.ok for row in self.rows])
        return data

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; NaN and infinite figures become None."""
        rows = [{**to_dict(row), "ok": row.ok, "value": _finite(row.value)} for row in self.rows]
        return {"ok": self.ok, "headline": self.headline, "platform": self.platform, "isolation": self.isolation,
                "quick": self.quick, "seconds": self.seconds, "environment": to_dict(self.environment), "rows": rows}

    def to_json(self) -> str:
        """`to_dict` as one JSON document."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, default=str)

    def cells(self) -> list[tuple[str, ...]]:
        """The table as text: COLUMNS per row."""
        return [cells(row) for row in self.rows]

    def __repr__(self) -> str:
        lines = [self.headline]
        widths = [max([len(c), *(len(row[i]) for row in self.cells())]) for i, c in enumerate(COLUMNS[:5])]
        for row in (COLUMNS, *self.cells()):
            shown = "  ".join(cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True))
            lines.append(f"{shown}  {cut(row[5], 100)}".rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from kernelevolve.views.html import Html, escape, table

        def sign(row: Row) -> Html:
            colour = _COLOURS.get(row.outcome, "inherit")
            weight = "bold" if row.outcome is Outcome.FAILED else "normal"
            word = escape(f"{_SIGNS[row.outcome]} {row.outcome.value}")
            return Html(f"<span style='color:{colour};font-weight:{weight}'>{word}</span>")

        body = [(*texts[:3], sign(row), *texts[4:])
                for row, texts in sorted(zip(self.rows, self.cells(), strict=True), key=lambda pair: pair[0].ok)]
        drawn = table(COLUMNS, [[b if isinstance(b, Html) else _printable(b) for b in r] for r in body],
                      numeric=("seconds",), caption="What failed comes first. Seconds are wall time.")
        colour = _COLOURS[Outcome.PASSED if self.ok else Outcome.FAILED]
        head = f"<p style='border-left:5px solid {colour};padding-left:0.6rem'><b>{escape(self.headline)}</b></p>"
        return Html(head + drawn)._repr_html_()


COLUMNS = ("claim", "expected", "got", "outcome", "seconds", "note")


def cells(row: Row) -> tuple[str, ...]:
    """A row as text for COLUMNS, free of line breaks and of what would move a terminal's cursor."""
    name = row.name if row.name.startswith(row.part) else f"{row.part} {row.name}"
    outcome = f"{_SIGNS[row.outcome]} {row.outcome.value}"
    return tuple(map(_printable, (name, row.expected, row.got, outcome, f"{row.seconds:.1f}", row.note)))


def _printable(text: object) -> str:
    flat = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in flat)


def cut(text: str, limit: int) -> str:
    """`text`, or its beginning with a mark that there was more."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
