"""From journal files to table rows: what is new since the last time, and whether the tables are still what they were.

`imports` holds how far each file was read and where its last line stood; `totals` how many rows each table had then.
Both change in the transaction that adds the rows, so tables that lost some of them, or belong to another journal,
are told from good ones by a few short reads.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from kernelevolve.store import journal, schema
from kernelevolve.store.log import read_header, read_header_record
from kernelevolve.testing import crash

_FLUSH_ROWS = 200_000
_LEDGERS = ("meta", "imports", "totals")
_Done = dict[str, tuple[Any, ...]]


def create_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the empty tables and views in a new database."""
    for name, columns in schema.TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")
    for name, query in schema.VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {query}")
    connection.execute("INSERT INTO meta VALUES (?)", [schema.VERSION])


def find_difference(connection: duckdb.DuckDBPyConnection, workspace: Path) -> str:
    """What the tables lack that they once held, in a sentence; empty when they are whole."""
    written = dict(connection.execute("SELECT name, rows FROM totals").fetchall())
    for name, count in _count(connection).items():
        if written.get(name, 0) != count:
            return f"table {name} holds {count} of {written.get(name, 0)} rows"
    query = "SELECT file, last_at, crc FROM imports WHERE crc <> ''"
    for file, last_at, crc in connection.execute(query).fetchall():
        if journal.checksum_at(workspace / "journal" / file, last_at) != crc:
            return f"journal file {file} is not the one that was imported"
    return ""


def bring_up(connection: duckdb.DuckDBPyConnection, workspace: Path) -> int:
    """Add what the journals have gained, in one transaction; answers the count of records."""
    done: _Done = {row[0]: row[1:] for row in connection.execute(
        "SELECT file, bytes, lines, next_seq, lost, last_at, crc FROM imports").fetchall()}
    count = 0
    connection.begin()
    try:
        for folder in sorted(p for p in (workspace / "journal").glob("*") if p.is_dir()):
            count += _import_study(connection, folder, done)
        if count:
            connection.execute("DELETE FROM totals")
            totals = [{"name": name, "rows": rows} for name, rows in _count(connection).items()]
            _insert_frame(connection, "totals", totals)
        crash.step("database.imported")
        connection.commit()
        crash.step("database.committed")
    except BaseException:
        with contextlib.suppress(duckdb.Error):
            connection.rollback()
        raise
    return count


def _count(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    names = [name for name in schema.TABLES if name not in _LEDGERS]
    query = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in names)  # noqa: S608 - ours
    return dict(connection.execute(query).fetchall())


def _import_study(connection: duckdb.DuckDBPyConnection, folder: Path, done: _Done) -> int:
    files = {f"{folder.name}/{p.name}": p for p in sorted(folder.glob("*.jsonl"))}
    sizes = {name: path.stat().st_size for name, path in files.items()}
    if all(done.get(name, (0,))[0] == size for name, size in sizes.items()):
        return 0
    header = read_header(folder)
    if not header:
        return 0
    study = header["name"]
    news = {}
    for name, path in files.items():
        start, lines, next_seq, lost, last_at, crc = done.get(name, (0, 0, 0, 0, 0, ""))
        if sizes[name] < start:
            return _import_anew(connection, folder, study, done)
        found = journal.read(path, offset=start, next_seq=next_seq, line=lines)
        if found.offset > start:
            last_at, crc = found.last_at, journal.checksum_at(path, found.last_at)
        news[name] = (found, {"lost": lost + found.lost, "last_at": last_at, "crc": crc})
    fresh = sorted((r for found, _ in news.values() for r in found.records), key=lambda r: r.order)
    query = "SELECT node FROM nodes WHERE study = $1 UNION ALL SELECT 0 FROM studies WHERE study = $1"
    known = {row[0] for row in connection.execute(query, [study]).fetchall()}
    if not known.isdisjoint({_only_once(record) for record in fresh}):
        # Two records of one node: which one holds depends on the whole history, so fold all of it.
        return _import_anew(connection, folder, study, done)
    if 0 not in known and all(r.kind != "study" for r in fresh) and (copy := read_header_record(folder)):
        fresh.insert(0, copy)  # the header's own line is damaged
    _insert(connection, _first_of_each(fresh), study)
    imports = [{"file": name, "study": study, "bytes": found.offset, "lines": found.lines, "next_seq": found.next_seq,
                **place} for name, (found, place) in news.items()]
    connection.execute("DELETE FROM imports WHERE study = ?", [study])
    _insert_frame(connection, "imports", imports)
    return len(fresh)


def _import_anew(connection: duckdb.DuckDBPyConnection, folder: Path, study: str, done: _Done) -> int:
    for table in schema.TABLES:
        if table not in ("meta", "totals"):
            connection.execute(f"DELETE FROM {table} WHERE study = ?", [study])  # noqa: S608 - a name of ours
    others = {name: row for name, row in done.items() if not name.startswith(f"{folder.name}/")}
    return _import_study(connection, folder, others)


def _only_once(record: journal.Record) -> int | None:
    """The number of the node that a record makes, 0 for the study itself; None for what may happen again."""
    return int(record.data["number"]) if record.kind == "node" else 0 if record.kind == "study" else None


def _first_of_each(fresh: Iterable[journal.Record]) -> Iterator[journal.Record]:
    seen: set[int] = set()
    for record in fresh:
        key = _only_once(record)
        if key is None or key not in seen:
            yield record
        if key is not None:
            seen.add(key)


def _insert(connection: duckdb.DuckDBPyConnection, fresh: Iterator[journal.Record], study: str) -> None:
    batch: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    size = 0
    for record in fresh:
        for table, row in schema.rows(record, study):
            batch[table].append(row)
            size += 1
        if size >= _FLUSH_ROWS:
            _flush(connection, batch)
            size = 0
    _flush(connection, batch)


def _flush(connection: duckdb.DuckDBPyConnection, batch: dict[str, list[dict[str, Any]]]) -> None:
    for table, table_rows in batch.items():
        _insert_frame(connection, table, table_rows)
    batch.clear()


def _insert_frame(connection: duckdb.DuckDBPyConnection, table: str, table_rows: list[dict[str, Any]]) -> None:
    if not table_rows:
        return
    frame = pd.DataFrame(table_rows)
    connection.register("incoming", frame)
    columns = ", ".join(frame.columns)
    connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM incoming")  # noqa: S608 - names of ours
    connection.unregister("incoming")
