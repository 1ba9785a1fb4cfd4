"""The self-test finds what is wrong, says so in words, and promises no more than the level in use does."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

import kernelevolve as ke
from kernelevolve.cli import app
from kernelevolve.errors import SettingError, UnknownNameError
from kernelevolve.evaluation import isolation
from kernelevolve.records import Status
from kernelevolve.testing import villains
from kernelevolve.testing.self_test import Outcome, Row, SelfTest
from kernelevolve.testing.self_test.limits import percentile
from kernelevolve.testing.self_test.processes import descendants, resident_bytes, wait_gone, watch_memory
from kernelevolve.testing.self_test.sandwich import a_dozen

CONTROL = villains.control_source()
RAISES = CONTROL.replace("return torch.softmax", "raise ValueError('on purpose')\n        return torch.softmax")
ZEROS = CONTROL.replace("return torch.softmax(x, dim=-1) * self.weight", "return torch.zeros_like(x)")
DROPS_A_FILE = "from pathlib import Path\nPath({path!r}).touch()\n"


def folder_of(tmp_path, **files):
    folder = tmp_path / "villains"
    folder.mkdir()
    for name, (head, source) in files.items():
        (folder / f"{name}.py").write_text(f"{head}\n{source}")
    return folder


def found(*outcomes: Outcome, **more) -> SelfTest:
    rows = tuple(Row("villain", f"v{i}", "crashed", "crashed", outcome, 1.0, **more)
                 for i, outcome in enumerate(outcomes))
    return SelfTest("cpu", "process", True, rows, 3.0, {"id": "here"})


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """`kernelevolve doctor --self-test` with real processes on a user's own folder: two villains as they say they are,
    one that is not, and one that needs a stronger wall.
    """
    place = tmp_path_factory.mktemp("own")
    folder = folder_of(place, raises=("# expect: runtime_error at check", RAISES),
                       zeros=("# expect: wrong_value at check", ZEROS),
                       claims_to_crash=("# expect: crashed at check", ZEROS),
                       escapes=("# expect: runtime_error\n# level: container",
                                DROPS_A_FILE.format(path=str(place / "dropped"))))
    done = CliRunner().invoke(app, ["doctor", "--self-test", "--quick", "--platform", "cpu", "--isolation", "process",
                                    "--villains", str(folder), "--part", "villains", "--part", "left over", "--json"])
    return done, json.loads(done.stdout), place


def row_of(found: dict, name: str) -> dict:
    return next(row for row in found["rows"] if row["name"] == name)


def test_a_folder_of_the_users_own_villains_is_run_in_place_of_the_shipped_ones(tested):
    _, found, _ = tested
    names = {row["name"] for row in found["rows"] if row["part"] == "villain"}
    assert names == {"raises", "zeros", "claims_to_crash", "escapes"}
    assert row_of(found, "raises")["outcome"] == "passed"
    assert row_of(found, "zeros")["got"] == "wrong_value at check"


def test_a_villain_with_another_status_than_its_own_is_a_failure_with_exit_code_1(tested):
    done, found, _ = tested
    row = row_of(found, "claims_to_crash")
    assert (row["expected"], row["got"], row["outcome"]) == ("crashed at check", "wrong_value at check", "failed")
    assert [r["name"] for r in found["rows"] if r["part"] == "villain" and not r["ok"]] == ["claims_to_crash"]
    assert found["ok"] is False
    assert re.search(r"\d FAILED: .*claims_to_crash", found["headline"])
    assert done.exit_code == 1


def test_each_row_is_told_when_it_is_known(tested):
    done, found, _ = tested
    lines = done.stderr.splitlines()
    assert len(lines) == len(found["rows"])
    told = "✗ failed: villain claims_to_crash: expected crashed at check; got wrong_value"
    assert any(told in line for line in lines)


def test_a_villain_that_needs_a_stronger_level_is_not_run_and_never_passed(tested):
    _, found, place = tested
    row = row_of(found, "escapes")
    assert row["outcome"] == "not promised at this level"
    assert "container" in row["got"]
    assert not (place / "dropped").exists()
    assert "1 not promised at this level" in found["headline"]


def test_the_control_is_measured_after_each_villain(tested):
    found = tested[1]
    status, timed = row_of(found, "status after a villain"), row_of(found, "time after a villain")
    assert (status["outcome"], status["value"], status["n"]) == ("passed", 100.0, 3)
    assert timed["n"] == 3
    assert "10%" in timed["expected"]
    assert "noise floor" in timed["expected"]
    assert row_of(found, "honest kernel after all villains (softmax)")["ok"]


def test_nothing_is_left_over(tested):
    found = tested[1]
    assert row_of(found, "processes")["value"] == row_of(found, "files")["value"] == 0
    assert found["environment"]["id"]
    assert found["isolation"] == "process"


@pytest.mark.slow
def test_kills_memory_and_respawn_are_within_their_limits():
    result = ke.self_test("cpu", "process", quick=True, progress=False, parts=["kill", "memory", "respawn"])
    values = {row.name: row.value for row in result.rows}
    assert result.ok, result
    assert 0 < values["kill latency p50"] <= values["kill latency p99"] < 2
    assert values["growth while a candidate prints 1 GB"] < 50
    assert 0 < values["new process ready after a crash"] < 1


def test_a_level_that_is_not_here_stops_it_and_no_weaker_one_is_taken(monkeypatch):
    class Moat(isolation.Isolation):
        name = "container"

        def available(self):
            return False, "no water"

        def open(self, room):
            raise AssertionError("never reached")

    monkeypatch.setitem(isolation.LEVELS, "container", Moat())
    with pytest.raises(SettingError, match="no water"):
        ke.self_test("cpu", "container", progress=False)
    with pytest.raises(UnknownNameError, match="process"):
        ke.self_test("cpu", "wall of words", progress=False)


def test_an_unknown_part_and_an_empty_folder_are_named(tmp_path):
    with pytest.raises(UnknownNameError, match="known: kill, left over"):
        ke.self_test("cpu", "process", parts=["luck"])
    with pytest.raises(SettingError, match="at least one villain"):
        ke.self_test("cpu", "process", tmp_path)


def test_a_dozen_has_as_many_kinds_as_it_can_and_none_that_the_level_cannot_stop():
    shipped = villains.load("cpu")
    chosen = a_dozen(shipped, "process")
    assert len(chosen) == len({v.name for v in chosen}) == 12
    assert len({v.expect for v in chosen}) >= min(11, len({v.expect for v in shipped if v.runs_at("process")}))
    assert all(v.runs_at("process") for v in chosen)
    assert {Status.DISHONEST, Status.CRASHED, Status.TIMEOUT, Status.WRONG_VALUE} <= {v.expect for v in chosen}


def test_nothing_tested_is_not_ok():
    assert found(Outcome.PASSED).ok
    assert not found().ok
    assert not found(Outcome.UNPROMISED, Outcome.MEASURED).ok
    assert not found(Outcome.PASSED, Outcome.FAILED).ok


def test_a_notebook_shows_words_beside_colours_and_escapes_what_candidates_wrote():
    page = found(Outcome.PASSED, Outcome.FAILED, note="<script>alert(1)</script>\x1b[2J")._repr_html_()
    assert "✓ passed" in page
    assert "✗ failed" in page
    assert "1 FAILED: v1" in page
    assert "<script>" not in page
    assert "\x1b" not in page
    assert page.index("v1</td>") < page.index("v0</td>"), "what failed comes first"


def test_a_terminal_shows_a_line_per_claim_that_cannot_move_the_cursor():
    text = repr(found(Outcome.PASSED, Outcome.UNPROMISED, note="a\nb\x1b[2J"))
    assert len(text.splitlines()) == 4
    assert "\x1b" not in text
    assert "not promised at this level" in text


def test_json_and_frame_hold_every_row():
    result = found(Outcome.PASSED, Outcome.FAILED, value=float("inf"), unit="s", n=3)
    data = json.loads(result.to_json())
    assert data["ok"] is False
    assert [row["outcome"] for row in data["rows"]] == ["passed", "failed"]
    assert data["rows"][0]["value"] is None, "JSON has no infinity"
    frame = result.frame()
    assert list(frame.columns) == ["part", "name", "expected", "got", "outcome", "ok", "seconds", "note", "value",
                                   "unit", "n"]
    assert frame["ok"].tolist() == [True, False]
    assert found().frame().empty


def test_a_row_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        found(Outcome.PASSED).rows[0].got = "correct"


def test_descendants_are_seen_until_they_are_gone():
    before = descendants()
    child = subprocess.Popen([sys.executable, "-c", "import subprocess as s; s.run(['sleep', '60'])"],
                             start_new_session=True)
    deadline = time.monotonic() + 10
    while len(descendants() - before) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(descendants() - before) == 2, "a grandchild in another session counts"
    os.killpg(child.pid, 9)
    child.wait()
    assert wait_gone(before, 5.0) == set()


def test_a_peak_of_memory_is_seen_after_it_has_passed():
    assert resident_bytes() > 0
    with watch_memory() as peak:
        block = bytearray(b"x") * 80_000_000
        time.sleep(0.05)
        del block
    assert 60e6 < peak.growth_bytes < 200e6


def test_a_percentile_is_one_of_the_values():
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile(range(1, 101), 0.99) == 99
    assert percentile([7], 0.99) == 7
