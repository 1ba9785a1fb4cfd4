"""`kernelevolve list`, `show`, `best`, `report`, `sql`, `problems`: read what is stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelevolve import errors
from kernelevolve.commands import console, summary
from kernelevolve.records import Node, to_dict
from kernelevolve.store import StudyLog, Workspace
from kernelevolve.views.frame import best as best_of
from kernelevolve.views.frame import frame, rows_of
from kernelevolve.views.html import clip, number


def list_studies(workspace: Path | None, *, as_json: bool) -> None:
    """Every study of the workspace, oldest first; one that cannot be read is named, not hidden."""
    space = Workspace(workspace)
    summaries = []
    for name in space.studies():
        try:
            summaries.append(summary.summarise(space.study(name)))
        except errors.StoreError as error:
            summaries.append({"problem": "?", "study": name, "error": str(error), "best": None, "nodes": 0})
    if as_json:
        console.show_json({"workspace": str(space.path), "studies": summaries})
    elif not summaries:
        console.say(f"no studies in {space.path}")
    else:
        console.show_table(summary.COLUMNS, map(summary.row, summaries), numeric=summary.NUMERIC, title=str(space.path))


def show(name: str, node: int | None, workspace: Path | None, *, as_json: bool) -> None:
    """A study as a table of its candidates, or one node with its source."""
    study = Workspace(workspace).study(name)
    if node is None:
        _show_study(study, as_json=as_json)
    elif node not in study.nodes:
        raise errors.StudyError(f"no node {node} in study {name!r}; it has {_range(study)}")
    else:
        _show_node(study.nodes[node], as_json=as_json)


def survey(name: str, node: int | None, rules: str, workspace: Path | None, *, as_json: bool) -> None:
    """One node's source, run again and judged under every rule set, or under one of them."""
    from kernelevolve.survey import COLUMNS, survey_of

    study = Workspace(workspace).study(name)
    if node is None:
        raise errors.SettingError("--rules judges one candidate again: name its NODE, as in "
                                  f"`kernelevolve show {name} 1 --rules {rules}`")
    if node not in study.nodes:
        raise errors.StudyError(f"no node {node} in study {name!r}; it has {_range(study)}")
    found = survey_of(study, node, rules)
    if as_json:
        console.show_json(found.to_dict())
        return
    console.show_table(COLUMNS, found.cells(), numeric=("error", "limit"), title=found.title)
    console.say(found.sentence)


def best(name: str, output: Path | None, workspace: Path | None, *, as_json: bool) -> None:
    """The best candidate's source, to a file or to stdout."""
    study = Workspace(workspace).study(name)
    top = best_of(study)
    if top is None:
        raise errors.StudyError(f"study {name!r} has no correct kernel yet: {len(study.nodes)} candidates, see "
                                f"`kernelevolve show {name}`; run more steps with `kernelevolve resume {name}`")
    if output is not None:
        try:
            output.write_text(top.source, "utf-8")
        except OSError as error:
            raise errors.StoreError(f"cannot write {output}: {error.strerror or error}") from error
    if as_json:
        console.show_json({**summary.summarise(study), "source": top.source, "path": str(output) if output else None})
    elif output is None:
        import typer

        typer.echo(top.source)
    else:
        reference = top.result.reference
        console.say(f"{output}: node {top.number}, {number(top.fitness)}× the fastest baseline ({reference})")


def report(names: list[str], output: Path, workspace: Path | None, *, as_json: bool) -> None:
    """Write the report."""
    from kernelevolve.report import report as write_report

    path = write_report(names, workspace, output)
    if as_json:
        console.show_json({"studies": names, "path": str(path), "bytes": path.stat().st_size})
    else:
        console.say(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


def sql(query: str, workspace: Path | None, *, as_json: bool) -> None:
    """Answer one query over the workspace's tables."""
    import duckdb

    try:
        answer = Workspace(workspace).sql(query)
    except duckdb.Error as error:
        raise errors.SettingError(f"DuckDB refused the query: {error}") from error
    rows = answer.to_dict("records")
    if as_json:
        console.show_json(rows)
    else:
        numeric = [str(c) for c in answer.select_dtypes("number").columns]
        console.show_table([str(c) for c in answer.columns], [[_cell(v) for v in r.values()] for r in rows],
                           numeric=numeric)


def problems(suite: str | None, *, as_json: bool) -> None:
    """The suites, or the problems of one."""
    from kernelevolve import problems as known

    found: dict[str, Any] = {}
    for name in [suite] if suite else known.suites():
        try:
            found[name] = known.suite(name)
        except errors.SettingError as error:
            if suite:
                raise
            found[name] = str(error)
    if as_json:
        console.show_json(found)
    elif suite:
        for problem in found[suite]:
            console.say(problem)
    else:
        rows = [(name, len(ids), clip(", ".join(ids), 200)) if isinstance(ids, list) else (name, "–", clip(ids, 200))
                for name, ids in found.items()]
        console.show_table(("suite", "problems", "what"), rows, numeric=("problems",))


def _show_study(study: StudyLog, *, as_json: bool) -> None:
    data = frame(study)
    if as_json:
        console.show_json({**summary.summarise(study), "candidates": data.to_dict("records")})
        return
    console.show_table(summary.COLUMNS, [summary.row(summary.summarise(study))], numeric=summary.NUMERIC)
    columns = ("node", "parents", "stage", "move", "status", "ratio", "median ms", "what")
    console.show_table(columns, [
        (r.node, ", ".join(map(str, r.parents)) or "–", r.stage, r.move or "–", r.status,
         f"{number(r.ratio)}×" if r.ratio == r.ratio else "–", number(r.median_ms),
         clip(r.rationale if r.outcome == "correct" else r.detail or r.rationale, 90))
        for r in rows_of(data)], numeric=("node", "ratio", "median ms"))
    if damage := study.state_damage():
        console.note(damage)


def _show_node(node: Node, *, as_json: bool) -> None:
    if as_json:
        console.show_json(to_dict(node))
        return
    result, proposal = node.result, node.proposal
    rows = [
        ("status", result.status.value), ("detail", result.detail), ("move", proposal.move),
        ("rationale", proposal.rationale), ("parents", ", ".join(map(str, node.parents)) or "none: a draft"),
        ("chosen because", proposal.selection.reason if proposal.selection else ""),
        *((f"× {name}", f"{number(i.value)} [{number(i.low)}, {number(i.high)}]") for name, i in result.ratios.items()),
        *((f"{t.name} median", f"{number(t.median_ms)} ms, n = {len(t.samples_ms)}") for t in result.timings),
        ("diagnosis", result.diagnosis.summary if result.diagnosis else ""),
        *((f"output {e.leaf}", f"error {number(e.error)}, limit {number(e.limit)}") for e in result.errors),
        ("seconds", ", ".join(f"{k} {v:.2f}" for k, v in result.stage_s.items())), ("log", result.log),
    ]
    console.show_table(("what", "value"), [(k, v) for k, v in rows if v], title=f"node {node.number}")
    console.say(node.source or "(no source)")


def _cell(value: Any) -> str:
    return number(value, 4) if isinstance(value, float) else str(value)


def _range(study: StudyLog) -> str:
    return f"nodes {min(study.nodes)} to {max(study.nodes)}" if study.nodes else "no nodes"
