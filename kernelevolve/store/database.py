"""The DuckDB file: tables over the journal, brought up to date by `sync`, made anew by `rebuild`.

DuckDB admits one process at a time to a file, readers included. So a connection lives for one question, is retried
until a deadline, and when another program keeps the file the message names that program's process.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from kernelevolve import errors
from kernelevolve.store import journal, schema
from kernelevolve.store.disk import FileLock, explained
from kernelevolve.store.log import read_header

FILE = "kernelevolve.duckdb"
_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_FLUSH_ROWS = 200_000
# Two connections of one process to one file must have the same access mode: they take turns.
_turns: collections.defaultdict[str, threading.RLock] = collections.defaultdict(threading.RLock)


class Database:
    """The tables of a workspace (`schema.py` lists them).

    Args:
        workspace: The workspace's folder.
        timeout_s: How long to wait for others that hold the file or its lock.
    """

    def __init__(self, workspace: Path, *, timeout_s: float = 10.0) -> None:
        self.workspace = workspace
        self.path = workspace / FILE
        self.timeout_s = timeout_s

    def sql(
        self, query: str, parameters: list[Any] | dict[str, Any] | None = None, *, sync: bool = True
    ) -> pd.DataFrame:
        """Answer one query. Raises StoreError when the file is held, duckdb's own errors for a wrong query."""
        if sync:
            self.sync()
        with self._connect(read_only=True) as connection:
            return connection.execute(query, parameters).df()

    def sync(self) -> int:
        """Import what the journals have gained since the last time, in one transaction. Answers the record count."""
        with self._locked():
            if not self.path.exists():
                return self._build()
            with self._connect(read_only=False) as connection:
                self._check_version(connection)
                return self._import(connection)

    def rebuild(self) -> int:
        """Make the file anew from the journals and put it in the old one's place."""
        with self._locked():
            return self._build()

    def _build(self) -> int:
        fresh = self.path.with_suffix(".new")
        with explained(fresh, "write"):
            for leftover in (fresh, Path(f"{fresh}.wal")):
                leftover.unlink(missing_ok=True)
        with self._connect(read_only=False, path=fresh) as connection:
            for name, columns in schema.TABLES.items():
                connection.execute(f"CREATE TABLE {name} ({columns})")
            for name, query in schema.VIEWS.items():
                connection.execute(f"CREATE VIEW {name} AS {query}")
            connection.execute("INSERT INTO meta VALUES (?)", [schema.VERSION])
            count = self._import(connection)
        with explained(self.path, "write"):
            Path(f"{self.path}.wal").unlink(missing_ok=True)
            fresh.replace(self.path)
        return count

    def _import(self, connection: duckdb.DuckDBPyConnection) -> int:
        done = {row[0]: row[1:] for row in connection.execute(
            "SELECT file, bytes, lines, next_seq, lost FROM imports").fetchall()}
        count = 0
        connection.begin()
        try:
            for folder in sorted(p for p in (self.workspace / "journal").glob("*") if p.is_dir()):
                count += self._import_study(connection, folder, done)
            connection.commit()
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                connection.rollback()
            raise
        return count

    def _import_study(self, connection: duckdb.DuckDBPyConnection, folder: Path, done: dict[str, Any]) -> int:
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
            start, lines, next_seq, lost = done.get(name, (0, 0, 0, 0))
            if sizes[name] < start:
                return self._import_anew(connection, folder, study, done)
            news[name] = (journal.read(path, offset=start, next_seq=next_seq, line=lines), lost)
        fresh = sorted((r for found, _ in news.values() for r in found.records), key=lambda r: r.order)
        query = "SELECT node FROM nodes WHERE study = $1 UNION ALL SELECT 0 FROM studies WHERE study = $1"
        known = {row[0] for row in connection.execute(query, [study]).fetchall()}
        if not known.isdisjoint({_only_once(record) for record in fresh}):
            # Two records of one node: which one holds depends on the whole history, so fold all of it.
            return self._import_anew(connection, folder, study, done)
        _insert(connection, _first_of_each(fresh), study)
        imports = [{"file": name, "study": study, "bytes": found.offset, "lines": found.lines,
                    "next_seq": found.next_seq, "lost": lost + sum(d.lost for d in found.damage)}
                   for name, (found, lost) in news.items()]
        connection.execute("DELETE FROM imports WHERE study = ?", [study])
        _insert_frame(connection, "imports", imports)
        return len(fresh)

    def _import_anew(
        self, connection: duckdb.DuckDBPyConnection, folder: Path, study: str, done: dict[str, Any]
    ) -> int:
        for table in schema.TABLES:
            if table != "meta":
                connection.execute(f"DELETE FROM {table} WHERE study = ?", [study])  # noqa: S608 - a name of ours
        others = {name: row for name, row in done.items() if not name.startswith(f"{folder.name}/")}
        return self._import_study(connection, folder, others)

    def _check_version(self, connection: duckdb.DuckDBPyConnection) -> None:
        version = connection.execute("SELECT version FROM meta").fetchall()[0][0]
        if version != schema.VERSION:
            raise errors.StoreError(
                f"the tables in {self.path} are of version {version}; this package writes version {schema.VERSION}. "
                "Use the version of kernelevolve that made them, or make them anew with Workspace.rebuild()."
            )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time imports; nobody else's import is done twice."""
        with explained(self.workspace, "create"):
            self.workspace.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.workspace / ".sync.lock")
        if not lock.acquire(self.timeout_s):
            raise errors.StoreError(
                f"process {lock.holder()} has been bringing {self.path} up to date for more than {self.timeout_s:g} s. "
                "Wait for it, or end it: the journal is safe, and the next sync goes on."
            )
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _connect(self, *, read_only: bool, path: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        path = path or self.path
        if read_only and not path.exists():
            raise errors.StoreError(f"there is no database at {path} yet: run Workspace.sync() first")
        with _turns[str(path)]:
            connection = self._open(path, read_only)
            try:
                yield connection
            except duckdb.IOException as error:
                raise errors.StoreError(f"DuckDB could not use {path}: {error}. {_ADVICE}") from error
            finally:
                with contextlib.suppress(duckdb.Error):
                    connection.close()

    def _open(self, path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return duckdb.connect(str(path), read_only=read_only, config=_OFFLINE)
            except (duckdb.IOException, duckdb.ConnectionException) as error:
                held = isinstance(error, duckdb.ConnectionException) or "lock" in str(error).lower()
                if not held:
                    raise errors.StoreError(f"DuckDB cannot open {path}: {error}. {_ADVICE}") from error
                if time.monotonic() >= deadline:
                    raise errors.StoreError(_name_holder(path, error, self.timeout_s)) from error
            except duckdb.Error as error:
                raise errors.StoreError(f"DuckDB cannot open {path}: {error}. {_ADVICE}") from error
            time.sleep(random.uniform(0.02, 0.1))  # noqa: S311 - jitter, not a secret


_ADVICE = (
    "The tables hold nothing that the journal does not: free some space if the disk is full, then make them anew with "
    "Workspace.rebuild()."
)


def _name_holder(path: Path, error: Exception, timeout_s: float) -> str:
    found = re.search(r"PID (\d+)", str(error))
    who = f"process {found[1]}" if found else f"a connection of this process ({os.getpid()})"
    return (
        f"{path} has been held by {who} for more than {timeout_s:g} s, and DuckDB admits one at a time: close its "
        "connection there (a notebook, a database browser), or end it. The search is not affected: nodes go to the "
        "journal, and the next sync imports them."
    )


def _only_once(record: journal.Record) -> int | None:
    """The number of the node that a record makes, 0 for the study itself; None for what may happen again."""
    return int(record.data["number"]) if record.kind == "node" else 0 if record.kind == "study" else None


def _first_of_each(fresh: list[journal.Record]) -> Iterator[journal.Record]:
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
