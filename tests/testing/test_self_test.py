"""The self-test finds what is wrong, says so in words, and promises no more than the level in use does."""

import dataclasses
import json
import os
import subprocess
import sys
import time

import pytest

import kernelevolve as ke
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
    """One self-test with real processes of a user's own folder: two villains as they say they are, one that is not,
    and one that needs a stronger wall. With what was told while it ran.
    """
    place = tmp_path_factory.mktemp("own")
    folder = folder_of(place, raises=("# expect: runtime_error at check", RAISES),
                       zeros=("# expect: wrong_value at check", ZEROS),
                       claims_to_crash=("# expect: crashed at check", ZEROS),
                       escapes=("# expect: runtime_error\n# level: container",
                                DROPS_A_FILE.format(path=str(place / "dropped"))))
    told = []
    result = ke.self_test("cpu", "process", folder, quick=True, progress=told.append, parts=["villains", "left over"])
    return result, told, place


def row_of(result: SelfTest, name: str) -> Row:
    return next(row for row in result.rows if row.name == name)


def test_a_folder_of_the_users_own_villains_is_run_in_place_of_the_shipped_ones(tested):
    result, told, _ = tested
    names = {row.name for row in result.rows if row.part == "villain"}
    assert names == {"raises", "zeros", "claims_to_crash", "escapes"}
    assert row_of(result, "raises").outcome is Outcome.PASSED
    assert row_of(result, "zeros").got == "wrong_value at check"
    assert tuple(told) == result.rows, "each row is told when it is known"


def test_a_villain_with_another_status_than_its_own_is_a_failure(tested):
    result = tested[0]
    row = row_of(result, "claims_to_crash")
    assert (row.expected, row.got, row.outcome) == ("crashed at check", "wrong_value at check", Outcome.FAILED)
    assert not result.ok
    assert "claims_to_crash" in result.headline
    assert [r.name for r in result.failed] == ["claims_to_crash"]


def test_a_villain_that_needs_a_stronger_level_is_not_run_and_never_passed(tested):
    result, _, place = tested
    row = row_of(result, "escapes")
    assert row.outcome is Outcome.UNPROMISED
    assert "container" in row.got
    assert not (place / "dropped").exists()
    assert "1 not promised at this level" in result.headline


def test_the_control_is_measured_after_each_villain(tested):
    result = tested[0]
    status, timed = row_of(result, "status after a villain"), row_of(result, "time after a villain")
    assert (status.outcome, status.value, status.n) == (Outcome.PASSED, 100.0, 3)
    assert timed.n == 3
    assert "10%" in timed.expected
    assert "noise floor" in timed.expected
    assert row_of(result, "honest kernel after all villains (softmax)").ok


def test_nothing_is_left_over(tested):
    result = tested[0]
    assert row_of(result, "processes").value == row_of(result, "files").value == 0
    assert result.environment["id"]
    assert result.isolation == "process"


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

        def wrap(self, arguments):
            return arguments

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
