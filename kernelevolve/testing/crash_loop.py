"""Kill a short study at every one of its steps, go on each time, and look at what the store holds.

    python -m kernelevolve.testing.crash_loop FOLDER [--first 1] [--stride 1]

prints one line of JSON per crash point. Each life is forked from this process, which has imported everything but never
holds a database connection (a fork of one would lose what it writes).
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import gc
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelevolve.store import Workspace
from kernelevolve.testing import crash
from kernelevolve.testing.history import check, compare_tables
from kernelevolve.testing.searching import search

NAME = "killed"
STEPS = 2


def live(folder: Path, where: str) -> tuple[int, list[str]]:
    """One life of the search, told to die at a crash point: its exit code (negative is a signal) and what it passed."""

    def run() -> list[str]:
        crash.arm(where)
        search(folder / "workspace", NAME, folder / "history", steps=STEPS, sync_every=1, speak_after=2)
        return crash.passed()

    return _fork(run)


def crash_at(folder: Path, point: int, *, again: int = 0, tables: bool = True) -> dict[str, Any]:
    """Kill at one point, perhaps a second time while it goes on; then let it end and check everything.

    Args:
        folder: An empty folder.
        point: Number of the step to die at.
        again: Number of the step of the second life to die at; 0 is none.
        tables: Whether to compare the database with one made anew, which takes longer than all the rest.
    """
    codes = [live(folder, str(point))[0]]
    if again:
        codes.append(live(folder, str(again))[0])
    code, answer = _fork(lambda: _go_on_and_look(folder, tables))
    outcome = {"point": point, "again": again, "codes": [*codes, code]}
    if not answer:
        return {**outcome, "faults": ["the study cannot be gone on with, or its store cannot be read"]}
    found, differing, numbers, resume_s = answer
    faults = found.pop("faults") + [f"table {name} differs from the journal" for name in differing]
    if numbers != list(range(1, len(numbers) + 1)):
        faults.append(f"the nodes are not numbered 1, 2, 3 …: {numbers}")
    return {**outcome, **found, "resume_s": resume_s, "faults": faults}


def _go_on_and_look(folder: Path, tables: bool) -> list[Any]:
    """The last life: resume, two more steps, then compare everything with the history."""
    crash.arm("")
    began = time.perf_counter()
    search(folder / "workspace", NAME, folder / "history", steps=1)
    resume_s = time.perf_counter() - began
    space = Workspace(folder / "workspace")
    found = check(space, NAME, folder / "history")
    # Tables that no killed process had touched are made now: there is nothing to compare them with.
    differing = compare_tables(space) if tables and space.database().path.exists() else []
    numbers = list(space.study(NAME).nodes)
    return [{**dataclasses.asdict(found), "faults": list(found.faults)}, differing, numbers, resume_s]


def count_points(folder: Path) -> list[str]:
    """Names of all steps of an undisturbed life, in order."""
    code, names = live(folder, "0")
    if code:
        raise RuntimeError(f"an undisturbed search ended with exit code {code}")
    return names


def crash_everywhere(
    folder: Path, *, first: int = 1, stride: int = 1, tables_every: int = 1, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """`crash_at` for every point (or every `stride`-th from `first`), every second of them with a second crash.

    The tables are compared after every crash in the database's own steps, and after every `tables_every`-th other one.
    """
    whole = folder / "whole"
    whole.mkdir(parents=True)
    gc.freeze()  # the forks share what was imported
    names = count_points(whole)
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    seconds = [rng.randrange(1, len(names)) if point % 2 else 0 for point in range(len(names) + 1)]
    for point in range(first, len(names) + 1, stride):
        place = folder / str(point)
        place.mkdir()
        tables = names[point - 1].startswith("database.") or point % tables_every == 0
        outcome = crash_at(place, point, again=seconds[point], tables=tables)
        yield {"name": names[point - 1], "points": len(names), **outcome}
        shutil.rmtree(place)


def _fork(work: Callable[[], list[Any]]) -> tuple[int, list[Any]]:
    """Run a function in a fork of this process: the exit code and its answer (nothing after a crash)."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read_end)
            answer = json.dumps(work()).encode()
            with os.fdopen(write_end, "wb") as pipe:
                pipe.write(answer)
            code = 0
        except BaseException as error:  # the only way to tell the parent
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(text) if text else []


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--tables-every", type=int, default=1)
    args = parser.parse_args()
    killed: collections.Counter[bool] = collections.Counter()
    for outcome in crash_everywhere(args.folder, first=args.first, stride=args.stride, tables_every=args.tables_every):
        killed[outcome["codes"][0] == -signal.SIGKILL] += 1
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()
    if killed[False]:
        raise SystemExit(f"{killed[False]} searches were not killed where they should have been")


if __name__ == "__main__":
    main()
