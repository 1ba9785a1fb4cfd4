"""What a search was told is safe, and whether the store still has it: a small history check, as Jepsen does it.

The driver writes `invoke` before and `ok` after each thing it asks of a study, in a file of its own that is on the
disk before it goes on. Afterwards everything with an `ok` must be in the store, once, unchanged and in order.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import json
import os
from pathlib import Path

import duckdb

from kernelevolve.records import Node, Status, to_dict
from kernelevolve.store import StudyLog, Workspace, imports, journal, schema
from kernelevolve.store.workspace import study_folder


class History:
    """Appends to a history file; each line is durable when the call returns.

    Args:
        path: The file, made when it is missing; several processes may write one after another.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def invoke(self, what: str) -> None:
        """Something is about to be asked for, such as "node 7"."""
        self._append(f"invoke {what}")

    def ok(self, what: str, digest: str = "") -> None:
        """It was acknowledged, with this content."""
        self._append(f"ok {what} {digest}".rstrip())

    def _append(self, line: str) -> None:
        os.write(self._fd, line.encode() + b"\n")
        os.fsync(self._fd)


@dataclasses.dataclass(frozen=True)
class Findings:
    """What became of what was acknowledged."""

    acknowledged: int = 0
    """Nodes and acts with an `ok`."""
    stored: int = 0
    """Nodes in the store."""
    marked_lost: int = 0
    """Of these, with status `lost`: under way when the search was killed, never acknowledged as anything else."""
    lost: tuple[str, ...] = ()
    """Acknowledged, not in the store."""
    changed: tuple[str, ...] = ()
    """In the store with another content."""
    duplicated: tuple[str, ...] = ()
    """More than one record of one node."""
    partial: tuple[str, ...] = ()
    """Nodes without their texts, numbers without a node."""
    disordered: tuple[str, ...] = ()
    """Records that do not stand in the order in which they were acknowledged."""

    @property
    def faults(self) -> tuple[str, ...]:
        """All that is wrong, in words."""
        return tuple(f"{kind}: {what}" for kind in ("lost", "changed", "duplicated", "partial", "disordered")
                     for what in getattr(self, kind))


def digest(node: Node) -> str:
    """Fingerprint of a node as it was recorded: later confirmations do not count."""
    bare = dataclasses.replace(node, result=dataclasses.replace(node.result, confirmations=(), confirmed={}))
    text = json.dumps(to_dict(bare), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check(workspace: Workspace, name: str, history: Path) -> Findings:
    """Compare a history with the store, after the study was resumed once (which is what marks nodes as lost)."""
    told = _read(history)
    if not told:
        return Findings()
    reading = journal.read_folder(workspace.journal_path / study_folder(name))
    log = workspace.study(name)
    found = {f"node {n}": digest(node) for n, node in log.nodes.items()}
    found |= {f"act {a.arguments.get('text')}": "" for a in log.acts}
    order = [f"node {r.data['number']}" if r.kind == "node" else f"act {r.data.get('text')}"
             for r in reading.records if r.kind in ("node", "act")]
    places = [order.index(what) for what in told if what in order]
    return Findings(
        acknowledged=len(told),
        stored=len(log.nodes),
        marked_lost=sum(node.status is Status.LOST for node in log.nodes.values()),
        lost=tuple(what for what in told if what not in found),
        changed=tuple(what for what, content in told.items() if found.get(what, content) != content),
        duplicated=tuple(what for what, count in collections.Counter(order).items() if count > 1),
        partial=(*log.missing_artifacts, *(f"number {n} has no node" for n in log.lost), *_damage(log)),
        disordered=tuple(f"{order[a]} stands after {order[b]}" for a, b in itertools.pairwise(places) if a > b),
    )


def compare_tables(workspace: Workspace) -> list[str]:
    """Names of the tables in which the database differs from one made anew, in memory, from the journal."""
    stored = workspace.sql(_FINGERPRINTS)
    with duckdb.connect(":memory:") as connection:
        imports.create_tables(connection)
        imports.bring_up(connection, workspace.path)
        made = connection.execute(_FINGERPRINTS).df()
    rows = [{*table.itertuples(index=False, name=None)} for table in (stored, made)]
    return sorted({str(row[0]) for row in rows[0] ^ rows[1]})


def _damage(log: StudyLog) -> tuple[str, ...]:
    return (log.state_damage(),) if log.damage else ()


def _read(history: Path) -> dict[str, str]:
    """What was acknowledged, in order, with its content. The last line may be torn."""
    told: dict[str, str] = {}
    for line in history.read_text().splitlines(keepends=True) if history.exists() else ():
        if line.startswith(("ok node ", "ok act ")) and line.endswith("\n"):
            kind, what, *content = line.split()[1:]
            told[f"{kind} {what}"] = content[0] if content else ""
    return told


_FINGERPRINTS = " UNION ALL ".join(
    f"SELECT '{name}', count(*), coalesce(sum(hash({name})), 0)::VARCHAR FROM {name}"  # noqa: S608 - names of ours
    for name in schema.TABLES
)
"""Per table its rows and a sum over hashes of them, in which the order does not count."""
