"""`kernelevolve doctor --self-test`: bad candidates, controls, kills and leftovers, on this machine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import typer
from rich.text import Text

from kernelevolve.commands import console
from kernelevolve.testing.self_test import PARTS, Outcome, Row, SelfTest, self_test
from kernelevolve.testing.self_test.record import COLUMNS, cells, cut

_STYLES = {Outcome.PASSED: "blue", Outcome.FAILED: "bold red"}


def run(*, platform: str, isolation: str, villains: Path | None, quick: bool, parts: Collection[str],
        as_json: bool) -> None:
    """Run it, show rows as they come and a table at the end; exit code 1 when a claim failed."""
    with _progress() as show:
        found = self_test(platform, isolation, villains, quick=quick, progress=show, parts=parts or PARTS)
    if as_json:
        console.show_json(found.to_dict())
    else:
        _table(found)
    if not found.ok:
        raise typer.Exit(console.FAILED)


def _table(found: SelfTest) -> None:
    """What failed comes last, next to the headline: that is where a terminal's reader looks."""
    rows = sorted(found.rows, key=lambda row: not row.ok)
    console.show_table(COLUMNS, [_styled(row) for row in rows], numeric=("seconds",))
    console.say(found.headline)


def _styled(row: Row) -> list[object]:
    texts: list[object] = [cut(text, 160) for text in cells(row)]
    at = COLUMNS.index("outcome")
    texts[at] = Text(str(texts[at]), style=_STYLES.get(row.outcome, ""))
    return texts


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Row], None]]:
    """Told every row: on a terminal the last one stands beside a spinner and failures stay, elsewhere a line each."""
    if not sys.stderr.isatty():
        yield lambda row: console.note(_line(row))
        return
    out = console.stderr()
    done = 0
    with out.status("starting") as status:

        def show(row: Row) -> None:
            nonlocal done
            done += 1
            text = Text(console.visible(f"{done} claims; {_line(row)}"), overflow="ellipsis", no_wrap=True)
            if not row.ok:
                out.print(Text(console.visible(_line(row)), style=_STYLES[Outcome.FAILED]))
            status.update(text)

        yield show


def _line(row: Row) -> str:
    name, expected, got, outcome, seconds, note = cells(row)
    return f"{outcome}: {name}: expected {expected}; got {got} [{seconds} s]{f'; {note}' if not row.ok else ''}"
