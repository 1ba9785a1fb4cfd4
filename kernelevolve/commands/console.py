"""Where commands write: results to stdout (a table, or JSON alone), everything else to stderr."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

F = TypeVar("F", bound=Callable[..., Any])

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes; 0 is success, 1 a failed self-test or a defect of this package."""


def stdout() -> Console:
    """For results. Made anew each time, because tests and pipes replace sys.stdout."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def stderr() -> Console:
    """For progress and errors."""
    return Console(file=sys.stderr, highlight=False)


def guarded(command: F) -> F:
    """Turn this package's errors into one message and exit code 2, and Ctrl-C into 130; never a traceback."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        from kernelevolve.errors import KernelEvolveError

        logging.basicConfig(level=os.environ.get("KERNELEVOLVE_LOG", "WARNING").upper(), format="%(message)s")
        try:
            return command(*args, **kwargs)
        except KernelEvolveError as error:
            stderr().print(Text.assemble(("error: ", "bold"), visible(error)), soft_wrap=True)
            raise typer.Exit(BAD_INPUT) from None
        except KeyboardInterrupt:
            stderr().print("interrupted; what was recorded is safe")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None

    return cast(F, wrapper)


def show_json(value: Any) -> None:
    """Write one JSON document to stdout; NaN and infinity become null."""
    typer.echo(json.dumps(plain(value), ensure_ascii=False, indent=2, allow_nan=False))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "",
               numeric: Sequence[str] = ()) -> None:
    """A table on stdout. Cells are untrusted text: no markup is read in them, control characters are made visible."""
    table = Table(title=Text(title) if title else None, title_justify="left", header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else Text(visible(value)) for value in row))
    console = stdout()
    if not sys.stdout.isatty():
        console.width = max(console.width, 150)
    console.print(table)


def say(text: str) -> None:
    """A line of untrusted text on stdout."""
    stdout().print(Text(visible(text)), soft_wrap=True)


def note(text: str) -> None:
    """A line on stderr, for a person who waits."""
    stderr().print(Text(visible(text)), soft_wrap=True)


def visible(value: Any) -> str:
    """Text without terminal control: what a candidate printed must not move the cursor."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def plain(value: Any) -> Any:
    """Plain JSON values, with null for NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    if hasattr(value, "item") and callable(value.item):
        return plain(value.item())
    return value if value is None or isinstance(value, (str, int, bool)) else str(value)
