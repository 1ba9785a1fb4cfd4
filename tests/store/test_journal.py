"""The journal: what was acknowledged is there, what is damaged is found and counted."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelevolve import errors
from kernelevolve.store import journal
from kernelevolve.store.journal import JournalWriter


def write(folder, count: int, kind: str = "node"):
    writer = JournalWriter(folder)
    for number in range(count):
        writer.append(kind, {"number": number, "text": f"record {number}"})
    writer.close()
    (path,) = folder.glob("*.jsonl")
    return path


def numbers(reading: journal.Reading) -> list[int]:
    return [r.data["number"] for r in reading.records]


def test_records_come_back_in_order_and_are_plain_json_lines(tmp_path) -> None:
    path = write(tmp_path, 5)
    reading = journal.read(path)
    assert numbers(reading) == [0, 1, 2, 3, 4]
    assert [r.seq for r in reading.records] == [0, 1, 2, 3, 4]
    assert not reading.damage
    assert list(json.loads(path.read_text().splitlines()[0])) == ["v", "seq", "t", "kind", "crc", "data"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10,
)


@given(st.dictionaries(st.text(), values))
def test_any_values_come_back_and_the_line_is_strict_json(data) -> None:
    line = journal.encode("node", data, 0, "2026-01-01T00:00:00")
    assert line.count(b"\n") == 1
    assert line.isascii()
    record = journal.decode(line[:-1], "w")
    assert isinstance(record, journal.Record)
    assert record.data == journal._finite(data)
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_flipped_byte_is_found(tmp_path_factory, data) -> None:
    path = write(tmp_path_factory.mktemp("j"), 4)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    reading = journal.read(path)
    assert set(numbers(reading)) <= {0, 1, 2, 3}
    good = {json.loads(line)["data"]["number"] for line in journal_lines(4)}
    assert all(r.data["text"] == f"record {r.data['number']}" for r in reading.records)
    lost = good - set(numbers(reading))
    assert reading.damage
    assert reading.lost >= len(lost)
    assert lost or place == len(content) - 1  # all of the last record is there when only its newline is not


def journal_lines(count: int) -> list[bytes]:
    return [journal.encode("node", {"number": n}, n, "t") for n in range(count)]


def test_a_flipped_byte_loses_one_record_and_is_stated(tmp_path) -> None:
    path = write(tmp_path, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"record 2", b"record 7")
    path.write_bytes(b"".join(lines))
    reading = journal.read(path)
    assert numbers(reading) == [0, 1, 3, 4]
    assert [str(d) for d in reading.damage] == [f"{path.name}, line 3: the checksum does not match"]


def test_a_lost_newline_is_counted_as_two_records(tmp_path) -> None:
    path = write(tmp_path, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1][:-1]
    path.write_bytes(b"".join(lines))
    reading = journal.read(path)
    assert numbers(reading) == [0, 3, 4]
    assert sum(d.lost for d in reading.damage) == 2


def test_a_newline_lost_between_the_last_two_is_counted_as_two_records(tmp_path) -> None:
    path = write(tmp_path, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"\n", b"\x0b")
    path.write_bytes(b"".join(lines))
    reading = journal.read(path)
    assert numbers(reading) == [0, 1, 2]
    assert reading.lost == sum(d.lost for d in reading.damage) == 2


def test_a_removed_line_is_counted(tmp_path) -> None:
    path = write(tmp_path, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:1] + lines[3:]))
    reading = journal.read(path)
    assert numbers(reading) == [0, 3, 4]
    assert sum(d.lost for d in reading.damage) == 2


@pytest.mark.parametrize("cut", [1, 2, 30, 60])
def test_a_torn_last_line_loses_only_itself(tmp_path, cut: int) -> None:
    path = write(tmp_path, 3)
    os.truncate(path, path.stat().st_size - cut)
    reading = journal.read(path)
    assert numbers(reading) == [0, 1]
    assert reading.torn
    assert not reading.damage


def test_reading_goes_on_where_it_stopped(tmp_path) -> None:
    writer = JournalWriter(tmp_path)
    writer.append("node", {"number": 0})
    (path,) = tmp_path.glob("*.jsonl")
    first = journal.read(path)
    with path.open("ab") as file:
        file.write(b'{"half')
    assert journal.read(path, offset=first.offset, next_seq=first.next_seq).records == []
    os.truncate(path, first.offset)
    writer.append("node", {"number": 1})
    second = journal.read(path, offset=first.offset, next_seq=first.next_seq)
    assert numbers(second) == [1]
    assert not second.damage


def test_a_newer_journal_is_refused_with_both_versions(tmp_path) -> None:
    path = write(tmp_path, 1)
    newer = path.read_bytes().replace(b'{"v":1', b'{"v":2')
    at = newer.find(b'"crc":"') + 7
    path.write_bytes(newer[:at] + b"%08x" % zlib.crc32(newer[:at] + b"0" * 8 + newer[at + 8 :]) + newer[at + 8 :])
    with pytest.raises(errors.StoreError, match=r"version 2; this package reads up to version 1"):
        journal.read(path)


def test_two_writers_share_a_folder_and_make_one_history(tmp_path) -> None:
    a, b = JournalWriter(tmp_path), JournalWriter(tmp_path)
    for number in range(6):
        (a, b)[number % 2].append("act", {"number": number})
    assert numbers(journal.read_folder(tmp_path)) == [0, 1, 2, 3, 4, 5]


def test_a_clock_that_goes_back_does_not_reorder_history(tmp_path) -> None:
    a = JournalWriter(tmp_path)
    a.last_time = "2999-01-01T00:00:00.000000+00:00"
    a.append("node", {"number": 0})
    b = JournalWriter(tmp_path)
    b.last_time = a.last_time
    b.append("node", {"number": 1})
    reading = journal.read_folder(tmp_path)
    assert all(r.time == a.last_time for r in reading.records)


def test_a_write_that_stops_short_is_taken_back_and_tried_in_a_new_file(tmp_path) -> None:
    """A limit on the file size makes the kernel write a part of the line, as a full disk does."""
    code = f"""
import resource, signal
from pathlib import Path
from kernelevolve import errors
from kernelevolve.store.journal import JournalWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = JournalWriter(Path({str(tmp_path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
done = 0
while True:
    try:
        writer.append("node", {{"number": done}})
        done += 1
    except errors.StoreError as error:
        print("refused", error)
        break
for number in range(done, done + 3):
    writer.append("node", {{"number": number}})
print(done)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    refusal, done = out.splitlines()
    assert "cannot append to" in refusal
    reading = journal.read_folder(tmp_path)
    assert numbers(reading) == list(range(int(done) + 3))
    assert not reading.damage
    assert not reading.torn
    assert len(list(tmp_path.glob("*.jsonl"))) == 2


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path, monkeypatch) -> None:
    writer = JournalWriter(tmp_path)
    writer.append("node", {"number": 0})

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(errors.StoreError, match=r"The disk is full: free some space.*acknowledged so far is safe"):
            writer.append("node", {"number": 1})
    writer.append("node", {"number": 1})
    assert numbers(journal.read_folder(tmp_path)) == [0, 1]


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path) -> None:
    rng = random.Random(0)
    acknowledged: dict[int, int] = {}
    for life in range(20):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read_end)
                writer = JournalWriter(tmp_path)
                for number in range(10**6):
                    kind = "node" if number % 3 else "stage"
                    writer.append(kind, {"number": number, "life": life, "text": "x" * 900})
                    os.write(write_end, b".")
            finally:
                os._exit(1)
        os.close(write_end)
        os.read(read_end, 1)
        time.sleep(rng.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        count = 1
        while data := os.read(read_end, 65536):
            count += len(data)
        os.close(read_end)
        acknowledged[life] = count
    reading = journal.read_folder(tmp_path)
    assert not reading.damage
    for life, count in acknowledged.items():
        found = [r.data["number"] for r in reading.records if r.data["life"] == life]
        assert found == list(range(len(found)))
        assert len(found) in (count, count + 1)
