"""The project's nbconvert exporter, `jupyter nbconvert --to kernelevolve x.ipynb`: one self-contained, inert HTML file.

plotly.js is embedded once and only when there is a figure; a content security policy names the hashes of the two
scripts and allows nothing else, so that the file never asks the network for anything. Text and HTML of outputs are
escaped or sanitised; figures are drawn from JSON that is data, not script.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from nbconvert.exporters import TemplateExporter
from nbconvert.filters import strip_ansi
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from traitlets import default

from kernelevolve.report.sanitize import sanitize
from kernelevolve.views import html
from kernelevolve.views.requirement import require

PLOTLY = "application/vnd.plotly.v1+json"
_HERE = Path(__file__).parent


class ReportExporter(TemplateExporter):
    """Notebook to one HTML file that opens with the network off."""

    export_from_notebook = "KernelEvolve report"
    output_mimetype = "text/html"

    @default("file_extension")
    def _file_extension_default(self) -> str:
        return ".html"

    @default("template_name")
    def _template_name_default(self) -> str:
        return "kernelevolve"

    @default("extra_template_basedirs")
    def _default_extra_template_basedirs(self) -> list[str]:
        return [*super()._default_extra_template_basedirs(), str(_HERE / "templates")]

    def default_filters(self) -> Iterable[tuple[str, Any]]:
        """The template's own filters beside nbconvert's."""
        yield from super().default_filters()
        yield "ke_output", render_output
        yield "ke_markdown", render_markdown
        yield "ke_source", lambda code: html.source(code).html
        yield "ke_escape", html.escape

    def from_notebook_node(self, nb: Any, resources: Any = None, **kw: Any) -> tuple[Any, dict[str, Any]]:
        """Convert a notebook node; the scripts that the policy allows are decided here."""
        drawn = any(PLOTLY in output.get("data", {}) for cell in nb.cells for output in cell.get("outputs", ()))
        scripts = [_plotly_js(), _text("figures.js")] if drawn else []
        resources = {**(resources or {}), "ke": {
            "scripts": scripts,
            "style": html.stylesheet() + _text("page.css"),
            "policy": _policy(scripts),
            "title": nb.metadata.get("title") or (resources or {}).get("metadata", {}).get("name", "notebook"),
        }}
        answer: tuple[Any, dict[str, Any]] = super().from_notebook_node(nb, resources, **kw)
        return answer


def render_markdown(text: str) -> str:
    """Markdown as inert HTML."""
    return sanitize(markdown2html_mistune(text))


def render_output(output: Any) -> str:
    """One output of a code cell as inert HTML: the richest kind that can be shown without a script of its own."""
    kind = output.get("output_type")
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return f"<pre class='{name}'>{_terminal(output['text'])}</pre>"
    if kind == "error":
        return f"<pre class='error' role='alert'>{_terminal(chr(10).join(output['traceback']))}</pre>"
    data = output.get("data", {})
    if PLOTLY in data:
        return _figure(data[PLOTLY])
    if "text/html" in data:
        return sanitize(data["text/html"])
    for image in ("image/png", "image/jpeg", "image/gif"):
        if image in data:
            alt = html.escape(data.get("text/plain", "image"))
            return sanitize(f"<img src='data:{image};base64,{''.join(data[image].split())}' alt='{alt}'>")
    if "text/markdown" in data:
        return render_markdown(data["text/markdown"])
    return f"<pre class='stdout'>{_terminal(data['text/plain'])}</pre>" if "text/plain" in data else ""


def _figure(figure: dict[str, Any]) -> str:
    layout = figure.get("layout", {})
    title = layout.get("title", {})
    title = title.get("text", "") if isinstance(title, dict) else str(title)
    meta = layout.get("meta") or {}
    alt = (meta.get("alt") if isinstance(meta, dict) else "") or title or "figure"
    dumps = require("json").dumps
    drawing = {"data": figure.get("data", []), "layout": layout}
    spec = dumps(_finite(drawing), allow_nan=False, separators=(",", ":"))
    for unsafe in "<>&\u2028\u2029":
        spec = spec.replace(unsafe, f"\\u{ord(unsafe):04x}")
    return (f"<figure><div class='plot' role='img' aria-label='{html.escape(alt)}'></div>"
            f"<script type='application/json' class='plot-data'>{spec}</script>"
            f"<figcaption>{html.escape(alt)}</figcaption></figure>")


def _finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity; plotly reads null as a gap."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def _terminal(text: str) -> str:
    return html.escape(strip_ansi(text))


def _policy(scripts: list[str]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (f"default-src 'none'; script-src {hashes or chr(39) + 'none' + chr(39)}; style-src 'unsafe-inline'; "
            "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'")


@cache
def _text(name: str) -> str:
    return (_HERE / "templates" / "kernelevolve" / name).read_text("utf-8")


@cache
def _plotly_js() -> str:
    return str(require("plotly.offline").get_plotlyjs())
