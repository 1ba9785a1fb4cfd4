"""What a study is, read from its journal: header, nodes, acts, environments. A fold, and nothing but."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelevolve import errors, records
from kernelevolve.store import encode, journal
from kernelevolve.store.artifacts import Artifacts
from kernelevolve.store.disk import write_atomic

HEADER_COPY = "header"
"""Name of the file beside a study's journal that holds its first record once more."""


@dataclasses.dataclass(frozen=True)
class Act:
    """Something the engineer did: "pin", "veto", "hint", "use" or "submit", with its arguments."""

    name: str
    arguments: dict[str, Any]
    time: str
    after: int
    """Highest number of a node when it was done."""


@dataclasses.dataclass
class StudyLog:
    """A study as its journal tells it. Changes nothing; read again for news."""

    folder: str
    """Name of its folder in `journal/` and `artifacts/`."""
    header: dict[str, Any] = dataclasses.field(default_factory=dict)
    nodes: dict[int, records.Node] = dataclasses.field(default_factory=dict)
    """By number; confirmations are already in the results."""
    keys: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """By number, what counts as the same candidate, where the journal says so."""
    asks: dict[int, records.Selection] = dataclasses.field(default_factory=dict)
    proposals: dict[int, records.Proposal] = dataclasses.field(default_factory=dict)
    """Of the asks that never became a node."""
    refuted: set[int] = dataclasses.field(default_factory=set)
    """Nodes that did not work when they were measured again."""
    acts: list[Act] = dataclasses.field(default_factory=list)
    environments: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    baselines: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    ends: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    damage: list[journal.Damage] = dataclasses.field(default_factory=list)
    lost_records: int = 0
    """How many records cannot be read any more (a torn last line is none: it was never acknowledged)."""
    torn: bool = False
    missing_artifacts: list[str] = dataclasses.field(default_factory=list)
    last_time: str = ""

    @property
    def name(self) -> str:
        """The study's name as it was given."""
        return str(self.header.get("name", self.folder))

    @property
    def problem(self) -> records.Problem:
        """The problem with its whole source, as it was when the study began."""
        return records.from_dict(records.Problem, self.header["problem"])

    @property
    def lost(self) -> tuple[int, ...]:
        """Numbers that were asked for, or lie below one that was recorded, and have no node."""
        top = max([*self.nodes, *self.asks], default=0)
        return tuple(n for n in range(1, top + 1) if n not in self.nodes)

    def state_damage(self) -> str:
        """One sentence on what the journal lost; empty when it is whole."""
        parts = []
        if self.damage:
            shown = "; ".join(map(str, self.damage[:3])) + (" …" if len(self.damage) > 3 else "")
            parts.append(f"{self.lost_records} journal records of study {self.name!r} are lost ({shown})")
        if self.missing_artifacts:
            count = len(self.missing_artifacts)
            parts.append(f"{count} artifacts cannot be read ({self.missing_artifacts[0]})")
        return "; ".join(parts)

    def __repr__(self) -> str:
        counts: dict[str, int] = {}
        for node in self.nodes.values():
            counts[node.status.value] = counts.get(node.status.value, 0) + 1
        summary = ", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "no nodes"
        return f"<StudyLog {self.name!r}: {summary}>"


def read_study(folder: Path, artifacts: Artifacts) -> StudyLog:
    """Fold a study's journal. Raises StoreError when not even its header can be read."""
    with _no_collection():
        return _fold(folder, artifacts)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: a study's millions of values are all kept, and looking through them over and over takes
    half the time of reading them.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _fold(folder: Path, artifacts: Artifacts) -> StudyLog:
    reading = journal.read_folder(folder)
    log = StudyLog(folder.name, damage=reading.damage, lost_records=reading.lost, torn=reading.torn)
    packed: dict[int, dict[str, Any]] = {}
    proposals: dict[int, dict[str, Any]] = {}
    confirms: list[dict[str, Any]] = []
    for record in reading.records:
        log.last_time = record.time
        data = record.data
        match record.kind:
            case "study":
                log.header = log.header or {**data, "time": record.time}
            case "ask":
                log.asks[data["number"]] = records.from_dict(records.Selection, data["selection"])
            case "proposal":
                proposals[data["number"]] = data["proposal"]
            case "node":
                packed.setdefault(data["number"], data)
            case "confirm":
                confirms.append(data)
            case "act":
                arguments = {k: v for k, v in data.items() if k != "act"}
                log.acts.append(Act(data["act"], arguments, record.time, max(packed, default=0)))
            case "environment":
                log.environments[data["id"]] = data
            case "baseline":
                log.baselines.append(data)
            case "end":
                log.ends.append(data)
    log.header = log.header or read_header(folder)
    if not log.header:
        raise errors.StoreError(
            f"the study in {folder} has no readable header ({'; '.join(map(str, reading.damage)) or 'no records'}). "
            "Restore the folder from a copy, or delete it."
        )
    log.keys = {n: data["keys"] for n, data in packed.items() if "keys" in data}
    log.nodes = {n: encode.unpack_node(packed[n], artifacts, log.missing_artifacts) for n in sorted(packed)}
    log.proposals = {
        n: encode.unpack_proposal(p, artifacts, log.missing_artifacts)
        for n, p in proposals.items()
        if n not in log.nodes
    }
    for data in confirms:
        _apply_confirm(log, data)
    return log


def read_header(folder: Path) -> dict[str, Any]:
    """A study's header alone, without its nodes; empty when it cannot be read."""
    record = read_header_record(folder)
    return {**record.data, "time": record.time} if record else {}


def read_header_record(folder: Path) -> journal.Record | None:
    """The record that began a study: from the journal, or from its copy when the journal's is damaged."""
    for path in [*sorted(folder.glob("*.jsonl")), folder / HEADER_COPY]:
        try:
            with path.open("rb") as file:
                line = file.readline()
        except (FileNotFoundError, NotADirectoryError):
            continue
        record = journal.decode(line[:-1], path.stem) if line.endswith(b"\n") else ""
        if isinstance(record, journal.Record) and record.kind == "study":
            return record
    return None


def copy_header(folder: Path) -> None:
    """Keep the header a second time: without it, one flipped byte would cost the whole study."""
    copy = folder / HEADER_COPY
    if not copy.exists() and (record := read_header_record(folder)):
        with contextlib.suppress(errors.StoreError):  # a full disk: it is made when the study is next opened
            write_atomic(copy, journal.encode(record.kind, record.data, record.seq, record.time))


def _apply_confirm(log: StudyLog, data: dict[str, Any]) -> None:
    node = log.nodes.get(data["number"])
    if node is None:
        return
    intervals = tuple(records.from_dict(records.Interval, i) for i in data["intervals"])
    again = {name: records.from_dict(records.Interval, i) for name, i in data.get("confirmed", {}).items()}
    result = dataclasses.replace(node.result, confirmations=node.result.confirmations + intervals, confirmed=again)
    log.nodes[node.number] = dataclasses.replace(node, result=result)
    if data.get("refuted", not intervals):
        log.refuted.add(node.number)
