"""The command `kernelevolve`. Signatures and help only: each command imports what it does when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelevolve.commands.console import guarded

app = typer.Typer(
    name="kernelevolve", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Search for faster kernels for PyTorch operators, and keep the evidence. Every command has --json. "
         "Exit codes: 0 done, 1 a self-test failed, 2 something you gave cannot be used, 130 interrupted.",
)

Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout and nothing else.")]
Space = Annotated[Path | None, typer.Option("--workspace", "-w", help="Folder of the studies. "
                                            "[default: $KERNELEVOLVE_WORKSPACE or ./kernelevolve-workspace]")]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="Name of a study (see `kernelevolve list`).")]
Steps = Annotated[int | None, typer.Option(min=1, help="Candidates to try. [default: 24 without another limit]")]
Wall = Annotated[float | None, typer.Option("--wall-s", min=0.0, help="Stop after so many seconds.")]
Target = Annotated[float | None, typer.Option(min=0.0, help="Stop at this ratio to the fastest baseline.")]


@app.command()
@guarded
def run(
    problems: Annotated[list[str], typer.Argument(metavar="PROBLEM...", help="Such as cpu/rms_norm or a .py file.")],
    steps: Steps = None,
    wall_s: Wall = None,
    target: Target = None,
    policy: Annotated[str, typer.Option(help="Where to go next: greedy, random, one-shot.")] = "greedy",
    operator: Annotated[str, typer.Option(help="Who writes candidates.")] = "template",
    platform: Annotated[str, typer.Option(help="Device to be fast on; auto takes the best one here.")] = "auto",
    rules: Annotated[str, typer.Option(help="What correct means: strict, kernelbench-v0.1 or -main.")] = "strict",
    seed: Annotated[int, typer.Option(help="Fixes every choice of the search.")] = 0,
    name: Annotated[str | None, typer.Option(help="Name of the study. [default: made from the problem's]")] = None,
    report: Annotated[Path | None, typer.Option(help="Write one report of all studies here at the end.")] = None,
    workspace: Space = None,
    as_json: Json = False,
) -> None:
    """Search for a faster kernel for each PROBLEM."""
    from kernelevolve.commands import run as command

    command.run(problems, steps=steps, wall_s=wall_s, target=target, policy=policy, operator=operator,
                platform=platform, rules=rules, seed=seed, name=name, report=report, workspace=workspace,
                as_json=as_json)


@app.command()
@guarded
def resume(study: StudyName, steps: Steps = None, wall_s: Wall = None, target: Target = None,
           workspace: Space = None, as_json: Json = False) -> None:
    """Go on with a study, also one that was killed."""
    from kernelevolve.commands import run as command

    command.resume(study, steps=steps, wall_s=wall_s, target=target, workspace=workspace, as_json=as_json)


@app.command("list")
@guarded
def list_(workspace: Space = None, as_json: Json = False) -> None:
    """List the studies of the workspace."""
    from kernelevolve.commands import look

    look.list_studies(workspace, as_json=as_json)


@app.command()
@guarded
def show(study: StudyName,
         node: Annotated[int | None, typer.Argument(metavar="[NODE]", help="A node's number.")] = None,
         rules: Annotated[str | None, typer.Option(help="Judge NODE's source again, under `all` rule sets or the one "
                                                   "named, from the same outputs.")] = None,
         workspace: Space = None, as_json: Json = False) -> None:
    """Show a study's candidates, or one of them with its source; or judge one again under other rules."""
    from kernelevolve.commands import look

    if rules is not None:
        look.survey(study, node, rules, workspace, as_json=as_json)
    else:
        look.show(study, node, workspace, as_json=as_json)


@app.command()
@guarded
def best(study: StudyName,
         output: Annotated[Path | None, typer.Option("--output", "-o", help="File. [default: stdout]")] = None,
         workspace: Space = None, as_json: Json = False) -> None:
    """Write the best kernel: a module that runs without this package."""
    from kernelevolve.commands import look

    look.best(study, output, workspace, as_json=as_json)


@app.command()
@guarded
def report(studies: Annotated[list[str], typer.Argument(metavar="STUDY...", help="Names of studies.")],
           output: Annotated[Path, typer.Option("--output", "-o", help=".html or .ipynb")],
           workspace: Space = None, as_json: Json = False) -> None:
    """Write a report: one page with figures and evidence that opens with the network off."""
    from kernelevolve.commands import look

    look.report(studies, output, workspace, as_json=as_json)


@app.command()
@guarded
def doctor(
    self_test: Annotated[bool, typer.Option("--self-test", help="Run bad candidates that must be caught, controls "
                                            "between them, and kernels known to be slower and faster.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Self-test of about a minute.")] = False,
    isolation: Annotated[str, typer.Option(help="Level to test: process, bubblewrap, container, auto.")] = "auto",
    platform: Annotated[str, typer.Option(help="Device to test on; auto takes the best one here.")] = "auto",
    villains: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Your own bad candidates, in place of the "
                                                  "shipped ones.")] = None,
    part: Annotated[list[str] | None, typer.Option(help="Only this part of the self-test; may be repeated: pairs, "
                                                   "villains, kill, left over, memory, respawn, overhead.")] = None,
    workspace: Space = None,
    as_json: Json = False,
) -> None:
    """Say what this machine has: devices, compilers, isolation, keys (present or not), workspace; or test it."""
    if self_test:
        from kernelevolve.commands import self_test as tests

        tests.run(platform=platform, isolation=isolation, villains=villains, quick=quick, parts=part or (),
                  as_json=as_json)
        return
    from kernelevolve.commands import doctor as command

    if quick or villains or part or isolation != "auto" or platform != "auto":
        command.refuse("--quick, --isolation, --platform, --villains and --part belong to --self-test; "
                       "add it, or leave them out")
    command.doctor(workspace, as_json=as_json)


@app.command()
@guarded
def problems(suite: Annotated[str | None, typer.Argument(metavar="[SUITE]", help="Such as cpu.")] = None,
             as_json: Json = False) -> None:
    """List the suites, or the problems of one."""
    from kernelevolve.commands import look

    look.problems(suite, as_json=as_json)


@app.command()
@guarded
def sql(query: Annotated[str, typer.Argument(metavar="QUERY", help="Such as: SELECT * FROM best")],
        workspace: Space = None, as_json: Json = False) -> None:
    """Answer one SQL query over the workspace's tables."""
    from kernelevolve.commands import look

    look.sql(query, workspace, as_json=as_json)


def main() -> None:
    """The entry point of `kernelevolve` and `python -m kernelevolve`."""
    app()
