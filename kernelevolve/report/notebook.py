"""The report as a notebook: short cells that import, call and show, so that a reader can run and change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelevolve.views.requirement import require

_OPENING = """import kernelevolve.views as views
from kernelevolve import report, store

workspace = store.Workspace(WORKSPACE)
studies = [workspace.study(name) for name in STUDIES]"""

_STUDY = """study = studies[{place}]
best = report.best_of(study)
report.title(study)"""

_CELLS: tuple[tuple[str, str], ...] = (
    ("code", "report.headline(study)"),
    ("markdown", """## How the search went
Every attempt is a point; the line is the best so far. A ratio is baseline time / candidate time, against the
fastest baseline, so 1 is parity."""),
    ("code", "views.trajectory(study)"),
    ("code", "views.tree(study)"),
    ("markdown", "## Candidates"),
    ("code", "views.candidate_table(study)"),
    ("markdown", """## The best candidate: is it faster?
Baselines and candidate were timed in turns in one session, with rotating inputs and flushed caches."""),
    ("code", "views.timing(best.result if best else ())"),
    ("code", "report.timing_table(best.result) if best else None"),
    ("markdown", "## Is it right?"),
    ("code", "report.error_table(best.result) if best else None"),
    ("markdown", "## Why does it take the time it takes?"),
    ("code", "report.profile(study)"),
    ("code", "report.roofline(study)"),
    ("markdown", "## What it does\nThe whole candidate. It runs without this package."),
    ("code", "report.source_of(best)"),
    ("markdown", """## How it came about
The best candidate's lineage, each edit with what it bought. The edit that bought most is open."""),
    ("code", "report.lineage(study)"),
    ("markdown", "## What did not work"),
    ("code", "views.failures(study)"),
    ("code", "views.failures_table(study)"),
    ("markdown", "## Where the numbers come from"),
    ("code", "report.environment(study)"),
    ("markdown", "The headline can be computed again from the stored samples alone:"),
    ("code", "report.provenance(study, workspace)"),
)


def build_notebook(studies: Sequence[str], workspace: str) -> Any:
    """The report notebook, not yet executed: a `parameters` cell, an overview of several studies, then one cell per
    section of each.
    """
    v4 = require("nbformat").v4
    notebook = v4.new_notebook(metadata={
        "title": f"{', '.join(studies)}: kernel search report",
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    })
    parameters = f"STUDIES = {list(studies)!r}\nWORKSPACE = {workspace!r}"
    plan = [("code", _OPENING)]
    if len(studies) > 1:
        plan.append(("code", "report.overview(studies)"))
    for place in range(len(studies)):
        plan += [("code", _STUDY.format(place=place)), *_CELLS]
    cells = [v4.new_markdown_cell(s) if kind == "markdown" else v4.new_code_cell(s) for kind, s in plan]
    notebook.cells = [v4.new_code_cell(parameters, metadata={"tags": ["parameters"]}), *cells]
    for i, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{i:03d}"
    return notebook
