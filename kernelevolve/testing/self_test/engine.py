"""`self_test`: the parts in their order, what they found in one record."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path

from kernelevolve import platforms
from kernelevolve.errors import KernelEvolveError, UnknownNameError
from kernelevolve.testing import villains as shipped
from kernelevolve.testing.self_test import limits, overhead, pairs, processes, sandwich
from kernelevolve.testing.self_test.record import Outcome, Row, SelfTest, cells
from kernelevolve.testing.self_test.setup import Setup, level_in_use
from kernelevolve.testing.villains import Villain

PARTS = ("pairs", "villains", "kill", "left over", "memory", "respawn", "overhead")
"""In the order they run; what is left over is looked for after the villains and the kills."""


def self_test(platform: str = "auto", isolation: str = "auto", villains: str | Path | None = None, *,
              quick: bool = False, progress: bool | Callable[[Row], None] = True,
              parts: Collection[str] = PARTS, read_source: bool = True) -> SelfTest:
    """Show on this machine what its verdicts and times are worth, with bad candidates that must be caught.

    Everything runs in processes of its own. About one minute with `quick`, five to ten without.

    Args:
        platform: Name of a platform, or "auto" for the best of this machine.
        isolation: Level to test: "process", "bubblewrap", "container", or "auto" for what a study would take. One that
            is not here raises SettingError; no weaker one is taken.
        villains: A folder with your own villains, in place of the shipped ones; see `testing/villains/`.
        quick: A dozen villains of different kinds, and fewer repetitions elsewhere.
        progress: Whether to tell each row as it comes (on stderr), or a function to call with it.
        parts: Which parts to run, of `PARTS`; all by default.
        read_source: Whether sources are read before they run (`Settings.read_source`). Without, every villain has to
            be caught by what it does.

    Returns:
        A `SelfTest`: `ok`, `rows`, `frame()`, `to_json()`; it draws itself in a notebook.
    """
    for part in parts:
        if part not in PARTS:
            raise UnknownNameError("part of the self-test", part, list(PARTS))
    where, level = platforms.resolve(platform), level_in_use(isolation)
    folder = Path(villains) if villains is not None else None
    found = shipped.load(where.name, folder)
    if quick and folder is None:
        found = sandwich.a_dozen(found, level)
    begin = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="kernelevolve-self-test-"))
    told = progress if callable(progress) else _tell if progress else None
    setup = Setup(where, level, scratch, quick, told, folder, read_source)
    try:
        _run(setup, found, parts)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return SelfTest(where.name, level, quick, tuple(setup.rows), time.monotonic() - begin, setup.environment)


def _run(setup: Setup, found: list[Villain], parts: Collection[str]) -> None:
    gpu_mib = processes.gpu_used_mib() if setup.platform.name != "cpu" else None
    if "left over" in parts:
        with setup.evaluator(shipped.problem_source()):
            pass  # servers of the level start here, and stand from now on
        setup.before = processes.descendants()
    work: dict[str, Callable[[], object]] = {
        "pairs": lambda: pairs.run(setup),
        "villains": lambda: sandwich.run(setup, found),
        "kill": lambda: limits.run_kill(setup),
        "left over": lambda: limits.run_left_over(setup, gpu_mib),
        "memory": lambda: limits.run_memory(setup),
        "respawn": lambda: limits.run_respawn(setup),
        "overhead": lambda: overhead.run(setup),
    }
    for part in PARTS:
        if part not in parts:
            continue
        begin = time.monotonic()
        try:
            work[part]()
        except KernelEvolveError as error:
            setup.add(Row(part, "could not be tested", "an answer", type(error).__name__, Outcome.FAILED,
                          time.monotonic() - begin, str(error)))


def _tell(row: Row) -> None:
    """A line on stderr for each row as it comes."""
    name, expected, got, outcome, seconds, note = cells(row)
    sys.stderr.write(f"{outcome:<10} {name}: expected {expected}; got {got} [{seconds} s]"
                     f"{f'; {note}' if note and not row.ok else ''}\n")
    sys.stderr.flush()
