"""Killed at any of its steps, a study goes on, and has everything that it said it had."""

import json
import os
import signal
import subprocess
import sys

import pytest

from kernelevolve.testing import crash

KINDS = {"journal", "store", "database", "session"}


def run_loops(folder, count: int) -> list[dict]:
    """All crash points of a short study, shared out among processes of their own: they fork."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    loops = [
        subprocess.Popen(
            [sys.executable, "-m", "kernelevolve.testing.crash_loop", str(folder / str(first)), "--first", str(first),
             "--stride", str(count), "--tables-every", "5"],
            env=environment, stdout=subprocess.PIPE, text=True,
        ) for first in range(1, count + 1)
    ]
    answers = [loop.communicate()[0] for loop in loops]
    assert [loop.returncode for loop in loops] == [0] * count
    return [json.loads(line) for answer in answers for line in answer.splitlines()]


def test_a_study_killed_at_any_step_goes_on_with_everything_it_acknowledged(tmp_path) -> None:
    outcomes = run_loops(tmp_path, 2)
    assert sorted(o["point"] for o in outcomes) == list(range(1, outcomes[0]["points"] + 1))
    assert len(outcomes) > 80
    assert {o["name"].split(".")[0] for o in outcomes} == KINDS
    wrong = [o for o in outcomes if o["faults"] or o["codes"][0] != -signal.SIGKILL or o["codes"][-1] != 0]
    assert not wrong, wrong[:3]
    # The check would be worth nothing if nothing had been acknowledged, or nothing had been under way.
    assert any(o["marked_lost"] for o in outcomes)
    assert any(len(o["codes"]) == 3 and o["codes"][1] == -signal.SIGKILL for o in outcomes)
    assert max(o["acknowledged"] for o in outcomes) > 5


@pytest.mark.parametrize(("where", "survives"), [("2", ["a.x"]), ("b:1", ["a.x", "a.y"]), ("a.y:1", ["a.x"]),
                                                 ("0", ["a.x", "a.y", "b.x"]), ("", ["a.x", "a.y", "b.x"])])
def test_the_switch_counts_all_steps_or_those_of_a_kind(where: str, survives: list[str]) -> None:
    code = ("from kernelevolve.testing.crash import step\n"
            "for name in ('a.x', 'a.y', 'b.x'):\n    step(name)\n    print(name, flush=True)\n")
    environment = {**os.environ, crash.VARIABLE: where}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == survives
    assert done.returncode == (0 if len(survives) == 3 else -signal.SIGKILL)


def test_a_switch_that_says_nothing_is_refused_with_an_example() -> None:
    with pytest.raises(ValueError, match=r'such as "7" or "journal:7"; got \'soon\''):
        crash.arm("soon")


def test_a_torn_write_leaves_half_a_line(tmp_path) -> None:
    code = f"""
from pathlib import Path
from kernelevolve.store.journal import JournalWriter
writer = JournalWriter(Path({str(tmp_path)!r}))
for number in range(3):
    writer.append("node", {{"number": number}})
"""
    environment = {**os.environ, crash.VARIABLE: "journal.tear:2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, timeout=60)
    assert done.returncode == -signal.SIGKILL
    (path,) = tmp_path.glob("*.jsonl")
    whole, half = path.read_bytes().split(b"\n")
    assert len(whole) // 2 - 2 < len(half) < len(whole) // 2 + 2
