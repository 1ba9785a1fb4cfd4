"""The journal: one line per record, appended with one write, checksummed; the truth of a study.

A line is `{"v":1,"seq":0,"t":"…","kind":"…","crc":"…","data":{…}}`. The checksum is the CRC-32 of the line's own
bytes with eight zeros in its place, so that it holds for the bytes on disk and not for some parser's view of them.
Each writing process has its own file; a writer that fails in the middle of a line goes on in a new file, so a torn
line can only be a last line.

Not promised: protection against somebody who edits the journal on purpose.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
import secrets
import zlib
from pathlib import Path
from typing import Any

from kernelevolve import errors
from kernelevolve.store.disk import explained, sync_folder
from kernelevolve.testing import crash

VERSION = 1
DURABLE = frozenset({"study", "node", "confirm", "act", "end"})
"""Kinds that are on the disk (fsync) when `append` returns; the others follow within the next of these."""
_START = b'{"v":'
_MARK = b'"crc":"'
_ZEROS = b"00000000"


@dataclasses.dataclass(frozen=True)
class Record:
    """One thing that happened."""

    kind: str
    data: dict[str, Any]
    time: str
    """UTC, ISO 8601 with microseconds; never decreases within one writer."""
    seq: int
    """0, 1, 2 … within its file."""
    writer: str
    """Name of its file without the ending."""
    version: int = VERSION

    @property
    def order(self) -> tuple[str, str, int]:
        """Sorts the records of several writers into one history."""
        return self.time, self.writer, self.seq


@dataclasses.dataclass(frozen=True)
class Damage:
    """A place where the journal is not what was written."""

    file: str
    line: int
    reason: str
    lost: int = 1
    """Records that cannot be read any more."""

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


@dataclasses.dataclass
class Reading:
    """What `read` found in one file, from the offset it was given."""

    records: list[Record] = dataclasses.field(default_factory=list)
    damage: list[Damage] = dataclasses.field(default_factory=list)
    lost: int = 0
    """Records that cannot be read any more, by the numbers of those that can: a damaged byte may split a line in two or
    join two. In what follows the last readable record, lines are counted."""
    torn: bool = False
    """Whether an incomplete last line was skipped: its record was never acknowledged."""
    offset: int = 0
    """Where the next reading may start: the end of the last complete line."""
    last_at: int = 0
    """Where that line began."""
    next_seq: int = 0
    lines: int = 0


def utc_now() -> str:
    """This moment in UTC, ISO 8601 with microseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


class JournalWriter:
    """Appends records to a file of its own in `folder`. Not to be shared between processes."""

    def __init__(self, folder: Path) -> None:
        """Open lazily: the file appears with the first record in the study's journal folder."""
        self.folder = folder
        self.last_time = ""
        """Time of the last record; none is dated earlier, so that a clock that went back does not reorder history."""
        self._fd: int | None = None
        self._seq = 0
        self._pid = os.getpid()
        self._broken = ""
        self.path: Path | None = None

    def append(self, kind: str, data: dict[str, Any]) -> int:
        """Write one record and return its number in the file.

        Raises StoreError when the disk refuses; then the record is not in the journal and the next one may be tried.
        """
        if self._broken:
            raise errors.StoreError(f"{self._broken}: close the study, look at the disk, and go on with Study.resume.")
        if self._fd is None or self._pid != os.getpid():
            self._open()
        now = max(utc_now(), self.last_time)
        line = encode(kind, data, self._seq, now)
        assert self._fd is not None
        assert self.path is not None
        fd, size = self._fd, os.fstat(self._fd).st_size
        crash.step("journal.append")
        crash.tear("journal.tear", line, lambda part: os.write(fd, part))
        try:
            with explained(self.path, "append to"):
                written = os.write(self._fd, line)
                if written < len(line):
                    # The kernel stopped short, which it does on a full disk: the next byte brings the reason.
                    os.write(self._fd, line[written:])
                crash.step("journal.written")
                if kind in DURABLE:
                    os.fsync(self._fd)
                    crash.step("journal.synced")
        except BaseException:
            self._retreat(size)
            raise
        self.last_time = now
        self._seq += 1
        return self._seq - 1

    def _open(self) -> None:
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
        self._pid = os.getpid()
        self.path = self.folder / f"{stamp}-{self._pid}-{secrets.token_hex(3)}.jsonl"
        with explained(self.path, "create"):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o644)
            crash.step("journal.created")
            sync_folder(self.folder)
        self._seq = 0

    def _retreat(self, size: int) -> None:
        """Take back a half-written line; go on in a new file, so that a torn line stays a last line."""
        assert self._fd is not None
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            # Its record may come back with the next reading, so this writer must not write another in its place.
            self._broken = f"{self.path} could not be cut back after a failed write ({error.strerror})"
        self.close()

    def close(self) -> None:
        """Close the file; a later `append` begins a new one."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.close()


def encode(kind: str, data: dict[str, Any], seq: int, time: str) -> bytes:
    """One line with its checksum."""
    try:
        body = json.dumps(data, separators=(",", ":"), allow_nan=False, default=_plain)
    except ValueError:
        body = json.dumps(_finite(data), separators=(",", ":"), allow_nan=False, default=_plain)
    head = f'{{"v":{VERSION},"seq":{seq},"t":"{time}","kind":"{kind}","crc":"'
    tail = f'","data":{body}}}\n'
    crc = zlib.crc32(head.encode() + _ZEROS + tail.encode())
    return f"{head}{crc:08x}{tail}".encode()


def _plain(value: Any) -> Any:
    """Numbers of numpy and torch as Python's."""
    if hasattr(value, "item"):
        value = value.item()
        return value if not isinstance(value, float) or math.isfinite(value) else str(value)
    raise TypeError(f"a record holds plain JSON values, not {type(value).__name__}")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as the words that float() reads back."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def decode(line: bytes, writer: str) -> Record | str:
    """The record in a line (without its newline), or what is wrong with it.

    Raises StoreError for a record of a newer version of this package.
    """
    at = line.find(_MARK) + len(_MARK)
    if at < len(_MARK):
        return "no checksum"
    crc, data = line[at : at + 8], line + b"\n"
    if crc != b"%08x" % zlib.crc32(data[:at] + _ZEROS + data[at + 8 :]):
        return "the checksum does not match"
    value = json.loads(line)
    if value["v"] > VERSION:
        raise errors.StoreError(
            f"journal {writer} is of version {value['v']}; this package reads up to version {VERSION}. "
            "Upgrade kernelevolve to open this study."
        )
    return Record(value["kind"], value["data"], value["t"], value["seq"], writer, value["v"])


def read(path: Path, *, offset: int = 0, next_seq: int = 0, line: int = 0) -> Reading:
    """Read the complete lines of one file from a byte offset on, verifying each.

    A damaged line is skipped and stated; so is a hole in the numbering.
    """
    found = Reading(offset=offset, next_seq=next_seq, lines=line)
    with explained(path, "read"), path.open("rb") as file:
        file.seek(offset)
        for raw in file:
            if not raw.endswith(b"\n"):
                if isinstance(decode(raw[:-1], path.stem), str):
                    found.torn = True
                    break
                found.damage.append(Damage(path.name, found.lines + 1, "the newline at its end is damaged", lost=0))
            found.last_at = found.offset
            found.offset += len(raw)
            found.lines += 1
            record = decode(raw[:-1], path.stem)
            if isinstance(record, str):
                held = max(1, raw.count(_START))  # two, when the newline between them is damaged
                found.damage.append(Damage(path.name, found.lines, record, lost=held))
                found.next_seq += held
                found.lost += held
                continue
            found.lost += record.seq - found.next_seq
            if record.seq > found.next_seq:
                hole = record.seq - found.next_seq
                reason = f"{hole} records are missing before record {record.seq}"
                found.damage.append(Damage(path.name, found.lines, reason, lost=hole))
            found.records.append(record)
            found.next_seq = record.seq + 1
    return found


def checksum_at(path: Path, offset: int) -> str:
    """The checksum that the line at a byte offset states, unverified; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            head = file.read(300)
    except FileNotFoundError:
        return ""
    at = head.find(_MARK) + len(_MARK)
    return head[at : at + 8].decode("ascii", "replace") if at >= len(_MARK) else ""


def read_folder(folder: Path) -> Reading:
    """All records of a study in the order they happened, with the damage of all its files."""
    merged = Reading()
    for path in sorted(folder.glob("*.jsonl")):
        part = read(path)
        merged.records += part.records
        merged.damage += part.damage
        merged.lost += max(0, part.lost)
        merged.torn |= part.torn
    merged.records.sort(key=lambda r: r.order)
    return merged
