"""HTML that is safe to show: every value that came from a problem, a candidate or a model is escaped here."""

from __future__ import annotations

import dataclasses
import html
import math
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from kernelevolve.records import Interval
from kernelevolve.views.requirement import require


@dataclasses.dataclass(frozen=True)
class Html:
    """A piece of HTML that draws itself in a notebook and prints as `text` in a terminal."""

    html: str
    text: str = ""

    def _repr_html_(self) -> str:
        return f"<style>{stylesheet()}</style><div class='ke'>{self.html}</div>"

    def __repr__(self) -> str:
        return self.text or "<HTML>"


@cache
def stylesheet() -> str:
    """The CSS of every table, source listing and diff, for notebooks and reports alike."""
    return (Path(__file__).parent / "style.css").read_text("utf-8")


def escape(value: object) -> str:
    """`value` as inert HTML text, usable in an attribute too. Control characters are made visible."""
    return html.escape(_visible(str(value)), quote=True)


def hover(text: str, *, width: int = 72, lines: int = 8) -> str:
    """Untrusted text for plotly, which reads a few HTML tags in its labels: escaped, wrapped, cut to `lines`."""
    wrapped = [piece for line in _visible(text).splitlines() for piece in textwrap.wrap(line, width) or [""]]
    if len(wrapped) > lines:
        wrapped = [*wrapped[: lines - 1], "…"]
    return "<br>".join(html.escape(line) for line in wrapped)


def clip(text: str, limit: int = 240) -> str:
    """First line's worth of `text` for a table cell."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{decimals}f}"


def plural(count: int, noun: str) -> str:
    """"1 candidate", "2 candidates"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def ratio(interval: Interval | None) -> str:
    """A ratio with its interval, such as "1.83× [1.79, 1.86]"."""
    if interval is None:
        return "–"
    return f"{number(interval.value)}× [{number(interval.low)}, {number(interval.high)}]"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, numeric: Sequence[str] = (),
          caption: str = "", row_classes: Sequence[str] = ()) -> str:
    """An HTML table. Cells are escaped unless they are `Html`; `numeric` columns are right-aligned."""
    def cell(name: str, value: object) -> str:
        kind = " class='num'" if name in numeric else ""
        return f"<td{kind}>{value.html if isinstance(value, Html) else escape(value)}</td>"

    head = "".join(f"<th scope='col'{' class=num' if c in numeric else ''}>{escape(c)}</th>" for c in columns)
    body = []
    for i, row in enumerate(rows):
        kind = f" class='{escape(row_classes[i])}'" if i < len(row_classes) and row_classes[i] else ""
        body.append(f"<tr{kind}>{''.join(cell(c, v) for c, v in zip(columns, row, strict=True))}</tr>")
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (f"<div class='scroll'><table>{title}<thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(body)}</tbody></table></div>")


def source(code: str, *, language: str = "python") -> Html:
    """A listing of untrusted source, coloured by CSS classes so that it follows the theme."""
    pygments, formatters = require("pygments"), require("pygments.formatters")
    lexer = require("pygments.lexers").get_lexer_by_name(language)
    body = pygments.highlight(_visible(code), lexer, formatters.HtmlFormatter(nowrap=True))
    return Html(f"<pre class='source'>{body}</pre>", code)


def diff(lines: Sequence[str]) -> Html:
    """A unified diff, marked by its signs as well as by colour."""
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    body = []
    for line in lines:
        kind = "head" if line.startswith(("+++", "---")) else kinds.get(line[:1], "same")
        body.append(f"<span class='{kind}'>{escape(line)}</span>")
    return Html("<pre class='diff'>" + "\n".join(body) + "</pre>", "\n".join(lines))


def _visible(text: str) -> str:
    """Replace control characters, bidirectional overrides included, by pictures or a replacement mark."""
    out = []
    for c in text.replace("\r\n", "\n"):
        code = ord(c)
        if code < 32 and c not in "\n\t":
            out.append(chr(0x2400 + code))
        elif code == 127 or 0xD800 <= code < 0xE000 or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069:
            out.append("\N{REPLACEMENT CHARACTER}")
        else:
            out.append(c)
    return "".join(out)
