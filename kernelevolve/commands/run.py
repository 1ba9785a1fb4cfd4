"""`kernelevolve run` and `resume`: search, show how it goes, say what came of it."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from kernelevolve import errors
from kernelevolve.commands import console, summary
from kernelevolve.records import Node

CONFIRMING = "measuring the finalists again in fresh processes"


def run(problems: list[str], *, steps: int | None, wall_s: float | None, target: float | None, name: str | None,
        report: Path | None, workspace: Path | None, as_json: bool, **choices: Any) -> None:
    """One study per problem, one after the other; a problem that cannot be used does not stop the others."""
    from kernelevolve.store import Workspace
    from kernelevolve.study import Study

    if name and len(problems) > 1:
        raise errors.SettingError(f"--name names one study; got {len(problems)} problems")
    _check_names(**choices)
    space = Workspace(workspace)
    summaries, interrupted = [], False
    for ref in problems:
        try:
            with _status(f"{ref}: loading"):
                study = Study(ref, name=name, workspace=space, **choices)
            with study:
                interrupted = _drive(study, steps, wall_s, target)
            summaries.append(summary.summarise(space.study(study.name)))
        except errors.KernelEvolveError as error:
            if len(problems) == 1:
                raise
            console.note(f"{ref}: {error}")
            summaries.append({"problem": ref, "error": str(error), "study": None, "best": None, "nodes": 0})
        if interrupted:
            break
    if report and (studies := [s["study"] for s in summaries if s["study"]]):
        from kernelevolve.report import report as write_report

        with _status(f"writing {report}"):
            write_report(studies, space, report)
    _finish(summaries, space, workspace, interrupted=interrupted, as_json=as_json)


def resume(name: str, *, steps: int | None, wall_s: float | None, target: float | None, workspace: Path | None,
           as_json: bool) -> None:
    """Go on with a study from its journal."""
    from kernelevolve.store import Workspace
    from kernelevolve.study import Study

    space = Workspace(workspace)
    with Study.resume(name, workspace=space) as study:
        interrupted = _drive(study, steps, wall_s, target)
    _finish([summary.summarise(space.study(name))], space, workspace, interrupted=interrupted, as_json=as_json)


def _check_names(*, policy: str, operator: str, platform: str, rules: str, seed: int) -> None:
    """Fail before any work is done when a name is unknown."""
    from kernelevolve import operators, platforms
    from kernelevolve.search import policies
    from kernelevolve.settings import rule_set

    policies.create(policy)
    platforms.resolve(platform)
    rule_set(rules)
    operators.create(operator)


def _drive(study: Any, steps: int | None, wall_s: float | None, target: float | None) -> bool:
    """Run the study with a bar or a log; answers whether the user interrupted it."""
    limit = steps if steps is not None or wall_s is not None or target is not None else 24
    with _progress(study.problem.id, limit, study) as show:
        ended = study.run(limit, wall_s=wall_s, target=target, progress=show)
    return bool(ended.reason == "interrupted")


def _finish(summaries: list[dict[str, Any]], space: Any, workspace: Path | None, *, interrupted: bool,
            as_json: bool) -> None:
    if as_json:
        console.show_json({"workspace": str(space.path), "interrupted": interrupted, "studies": summaries})
    else:
        console.show_table(summary.COLUMNS, map(summary.row, summaries), numeric=summary.NUMERIC)
        option = f" --workspace {shlex.quote(str(workspace))}" if workspace else ""
        for found in summaries:
            if found["best"] is not None:
                name, stem = shlex.quote(found["study"]), shlex.quote(found["study"].replace("/", "-"))
                console.say(f"kernelevolve report {name} -o {stem}.html{option}")
                console.say(f"kernelevolve best {name} -o {stem}.py{option}")
    if interrupted:
        raise typer.Exit(console.INTERRUPTED)
    if any(found.get("error") for found in summaries):
        raise typer.Exit(console.BAD_INPUT)


@contextlib.contextmanager
def _status(text: str) -> Iterator[None]:
    if sys.stderr.isatty():
        with console.stderr().status(console.visible(text)):
            yield
    else:
        console.note(text)
        yield


@contextlib.contextmanager
def _progress(title: str, steps: int | None, study: Any) -> Iterator[Callable[[Node], None]]:
    """Called with every node: moves a bar on a terminal, writes a line elsewhere."""
    began, seen = time.monotonic(), 0

    def describe(node: Node) -> str:
        best = study.tree.best
        leader = f"best {study.tree.score(best.number):.2f}× (node {best.number})" if best else "nothing correct yet"
        own = f" {node.fitness:.2f}×" if node.fitness > 0 else ""
        return f"{node.proposal.move or node.proposal.operator}: {node.status.value}{own}; {leader}"

    if not sys.stderr.isatty():
        console.note(f"{title}: measuring the baselines")

        def line(node: Node) -> None:
            nonlocal seen
            seen += 1
            total = f"/{steps}" if steps else ""
            passed_s = time.monotonic() - began
            console.note(f"{title}: {seen}{total} node {node.number} {describe(node)} [{passed_s:.0f} s]")
            if seen == steps:
                console.note(f"{title}: {CONFIRMING}")

        yield line
        return

    from rich import progress as bars
    from rich.markup import escape

    columns = (bars.TextColumn("[bold]{task.description}"), bars.BarColumn(bar_width=24), bars.MofNCompleteColumn(),
               bars.TimeElapsedColumn(), bars.TextColumn("{task.fields[news]}"))
    with bars.Progress(*columns, console=console.stderr()) as bar:
        task = bar.add_task(escape(title), total=steps, news="measuring the baselines")

        def move(node: Node) -> None:
            nonlocal seen
            seen += 1
            bar.update(task, advance=1, news=CONFIRMING if seen == steps else escape(console.visible(describe(node))))

        yield move
