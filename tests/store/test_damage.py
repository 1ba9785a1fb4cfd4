"""One flipped byte, anywhere: the study opens, what is lost is counted, and the tables are those of the journal."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelevolve.records import Status
from kernelevolve.store import Workspace, journal
from kernelevolve.store.workspace import study_folder
from kernelevolve.study import Study
from kernelevolve.testing import crash
from kernelevolve.testing.history import digest
from kernelevolve.testing.searching import Judge, Writer, search

STEPS = 5
CLASSES = {
    "version": rb'"v":(\d)', "number": rb'"seq":(\d+)', "time": rb'"t":"([^"]+)"', "kind": rb'"kind":"([^"]+)"',
    "checksum": rb'"crc":"([^"]+)"', "body": rb'"data":(\{.*\})\}$', "newline": rb"(\n)",
}


class Whole:
    """An undamaged study and the bytes of its journal."""

    def __init__(self, folder) -> None:
        folder.mkdir(exist_ok=True)
        search(folder / "w", "s", folder / "history", steps=STEPS, speak_after=2)
        self.space = Workspace(folder / "w")
        (self.path,) = (self.space.journal_path / study_folder("s")).glob("*.jsonl")
        self.content = self.path.read_bytes()
        self.nodes = {n: digest(node) for n, node in self.space.study("s").nodes.items()}
        self.records = self.content.count(b"\n")

    def flip(self, place: int, mask: int) -> None:
        damaged = bytearray(self.content)
        damaged[place] ^= mask
        self.path.write_bytes(damaged)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Whole(tmp_path_factory.mktemp("whole"))


def assert_opens_and_states_the_loss(whole: Whole, place: int, mask: int) -> int:
    """How many records the flipped byte cost."""
    whole.flip(place, mask)
    log = whole.space.study("s")
    missing = set(whole.nodes) - set(log.nodes)
    assert {n: digest(node) for n, node in log.nodes.items()} == {
        n: content for n, content in whole.nodes.items() if n not in missing
    }
    readable = len(journal.read_folder(whole.path.parent).records)
    assert log.damage
    last = place >= whole.content.rstrip(b"\n").rfind(b"\n")
    # Exact, but for the last line of a file: nothing after it tells how many there were.
    assert log.lost_records == whole.records - readable or (last and log.lost_records == whole.records - readable + 1)
    assert (f"{log.lost_records} journal records of study 's' are lost" in log.state_damage())
    return whole.records - readable


@pytest.mark.parametrize("part", CLASSES)
def test_a_flipped_byte_of_any_kind_costs_at_most_two_records_and_is_stated(whole, part: str) -> None:
    rng = random.Random(part)
    spans = [m.span(1) for m in re.finditer(CLASSES[part], whole.content, re.MULTILINE)]
    assert len(spans) == whole.records
    costs = Counter(
        assert_opens_and_states_the_loss(whole, rng.randrange(*span), 1 << rng.randrange(8))
        for span in [spans[0], spans[-1], *rng.choices(spans, k=8)]
    )
    assert set(costs) <= ({0, 1, 2} if part == "newline" else {1})


@given(st.data())
@settings(max_examples=150, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_flipped_byte_anywhere_is_stated(whole, data) -> None:
    place = data.draw(st.integers(0, len(whole.content) - 1))
    assert assert_opens_and_states_the_loss(whole, place, data.draw(st.integers(1, 255))) <= 2


def test_a_body_byte_that_becomes_a_newline_is_one_lost_record(whole) -> None:
    lines = whole.content.splitlines(keepends=True)
    place = len(b"".join(lines[:4])) + 200
    damaged = bytearray(whole.content)
    damaged[place] = ord("\n")
    whole.path.write_bytes(damaged)
    log = whole.space.study("s")
    assert len(log.damage) == 2
    assert log.lost_records == 1


def test_a_study_with_a_damaged_node_goes_on_and_that_node_is_lost(tmp_path, caplog) -> None:
    whole = Whole(tmp_path)
    whole.space.sync()
    place = re.search(rb'"kind":"node".{300}', whole.content).end()
    whole.flip(place, 4)
    with Study.resume("s", workspace=whole.space, operator=Writer(), evaluator=Judge()) as study:
        study.step()
    assert "1 journal records of study 's' are lost" in caplog.text
    assert study.tree.node(1).status is Status.LOST
    assert study.tree.node(1).source  # the proposal's record still tells what was tried
    whole.space.rebuild()
    table = whole.space.sql("SELECT node, status FROM nodes ORDER BY node")
    assert table["node"].tolist() == list(range(1, STEPS + 3))
    assert table["status"][0] == "lost"
    assert whole.space.sql("SELECT sum(lost) AS n FROM imports")["n"][0] == 1


def flip_and_ask(space: Workspace, seed: int, *files) -> list[bool]:
    """Flip bytes of the last file, ask the database each time, in another process: was it made anew?"""
    command = [sys.executable, "-m", "kernelevolve.testing.damage", str(space.path), str(seed), "6", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert not [(place, differing) for place, differing, _ in outcomes if differing]
    return [anew for _, _, anew in outcomes]


def test_a_flipped_byte_in_the_database_never_changes_an_answer(tmp_path) -> None:
    whole = Whole(tmp_path)
    whole.space.sync()
    anew = flip_and_ask(whole.space, 0, whole.space.database().path)
    assert len(anew) == 14
    assert sum(anew) > 5  # some bytes belong to no block that is read


def test_a_flipped_byte_in_the_write_ahead_log_never_changes_an_answer(tmp_path) -> None:
    """The log is there because the process died between the commit and the checkpoint."""
    whole = Whole(tmp_path)
    whole.space.sync()
    with Study.resume("s", workspace=whole.space, operator=Writer(), evaluator=Judge()) as study:
        for _ in range(3):
            study.step()
    code = f"from kernelevolve.store import Workspace; Workspace({str(whole.space.path)!r}).sync()"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, crash.VARIABLE: "database.committed:1"})
    assert done.returncode == -signal.SIGKILL
    path = whole.space.database().path
    log = path.with_name(path.name + ".wal")
    assert log.stat().st_size > 1000
    assert sum(flip_and_ask(whole.space, 1, path, log)) > 5


def test_rows_that_vanished_are_noticed_and_the_tables_made_anew(tmp_path, caplog) -> None:
    """DuckDB may open a damaged file with fewer rows and no error; the tables know how many they had."""
    import duckdb

    whole = Whole(tmp_path)
    whole.space.sync()
    with duckdb.connect(str(whole.space.database().path)) as connection:
        connection.execute("DELETE FROM samples WHERE sample > 3")
        connection.execute("DELETE FROM nodes WHERE node > 2")
    assert len(whole.space.sql("SELECT * FROM nodes")) == STEPS + 1
    assert f"table nodes holds 2 of {STEPS + 1} rows" in caplog.text


def test_tables_of_another_journal_are_noticed_and_made_anew(tmp_path, caplog) -> None:
    """The folder was restored from a copy, say: same names, same sizes, another content."""
    whole, other = Whole(tmp_path / "a"), Whole(tmp_path / "b")
    other.space.sync()
    whole.path.rename(whole.path.with_name(other.path.name))
    other.space.database().path.rename(whole.space.database().path)
    nodes = whole.space.sql("SELECT node, time FROM nodes ORDER BY node")
    assert nodes["time"].tolist() == [n.time for n in whole.space.study("s").nodes.values()]
    assert "is not the one that was imported" in caplog.text
