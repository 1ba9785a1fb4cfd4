"""The DuckDB file: tables over the journal, brought up to date by `sync`, made anew by `rebuild`.

DuckDB admits one process at a time to a file, readers included. So a connection lives for one question, is retried
until a deadline, and when another program keeps the file the message names that program's process.

The file holds nothing that the journal does not. Found damaged, or with fewer rows than it once had, it is put aside
and made anew, with a warning; it is never answered from.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import logging
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pandas as pd

from kernelevolve import errors
from kernelevolve.store import imports, schema
from kernelevolve.store.disk import FileLock, explained
from kernelevolve.testing import crash

logger = logging.getLogger(__name__)
FILE = "kernelevolve.duckdb"
_OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_NEARLY_FULL_BYTES = 4 * 2**20
# Two connections of one process to one file must have the same access mode: they take turns.
_turns: collections.defaultdict[str, threading.RLock] = collections.defaultdict(threading.RLock)


class _DamagedError(Exception):
    """The file is not what was written to it."""


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
        """Answer one query. Raises StoreError when the file is held, duckdb's own errors for a wrong query.

        In a workspace that cannot be written to, the tables are made in memory for this one question.
        """
        if sync and self.workspace.is_dir() and not os.access(self.workspace, os.W_OK):
            with duckdb.connect(":memory:", config=_OFFLINE) as connection:
                imports.create_tables(connection)
                imports.bring_up(connection, self.workspace)
                return connection.execute(query, parameters).df()
        if sync:
            self.sync()
        try:
            return self._ask(query, parameters)
        except _DamagedError as damage:  # in a block that no sync had to read
            if not sync:
                raise errors.StoreError(f"{self.path} is damaged: {damage}. {_ADVICE}") from damage
            with self._locked():
                self._make_anew(str(damage))
            return self._ask(query, parameters)

    def sync(self) -> int:
        """Import what the journals have gained since the last time, in one transaction. Answers the record count.

        Raises StoreError when the file is held, the disk is full, or the tables are of a newer version.
        """
        with self._locked():
            if not self.path.exists():
                return self._build()
            try:
                with self._connect(read_only=False) as connection:
                    lacking = self._find_age(connection) or imports.find_difference(connection, self.workspace)
                    if not lacking:
                        return imports.bring_up(connection, self.workspace)
            except _DamagedError as damage:
                return self._make_anew(str(damage))
            except duckdb.Error as error:  # all queries here are ours: a table or a column is missing
                return self._make_anew(str(error))
            return self._make_anew(lacking)

    def rebuild(self) -> int:
        """Make the file anew from the journals and put it in the old one's place."""
        with self._locked():
            return self._build()

    def _ask(self, query: str, parameters: list[Any] | dict[str, Any] | None) -> pd.DataFrame:
        with self._connect(read_only=True) as connection:
            return connection.execute(query, parameters).df()

    def _make_anew(self, why: str) -> int:
        """Put the file aside, for whoever wants to know what happened to it, and build another."""
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S")
        aside = self.path.with_name(f"{FILE}.damaged-{stamp}")
        with explained(self.path, "put aside"):
            self.path.replace(aside)
        count = self._build()
        logger.warning("the tables in %s were made anew from the journal (%d records): %s. The old file is now %s.",
                       self.path, count, why.splitlines()[0], aside.name)
        return count

    def _build(self) -> int:
        fresh = self.path.with_suffix(".new")
        with explained(fresh, "write"):
            for leftover in (fresh, Path(f"{fresh}.wal")):
                leftover.unlink(missing_ok=True)
        try:
            with self._connect(read_only=False, path=fresh) as connection:
                imports.create_tables(connection)
                count = imports.bring_up(connection, self.workspace)
                connection.execute("CHECKPOINT")  # what cannot be written fails here, not unseen when it is closed
        except (duckdb.Error, _DamagedError) as error:
            raise errors.StoreError(f"the tables could not be made: {error}. {_ADVICE}") from error
        with explained(self.path, "write"):
            crash.step("database.built")
            Path(f"{self.path}.wal").unlink(missing_ok=True)
            crash.step("database.unlinked")
            fresh.replace(self.path)
            crash.step("database.placed")
        return count

    def _find_age(self, connection: duckdb.DuckDBPyConnection) -> str:
        """Why tables of an older version are made anew; empty for this version. Raises StoreError for a newer one."""
        version = connection.execute("SELECT version FROM meta").fetchall()[0][0]
        if version > schema.VERSION:
            raise errors.StoreError(
                f"the tables in {self.path} are of version {version}; this package writes version {schema.VERSION}. "
                "Use the version of kernelevolve that made them, or make them anew with Workspace.rebuild()."
            )
        older = f"they were of version {version}, and this package writes version {schema.VERSION}"
        return older if version < schema.VERSION else ""

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
        """A connection, with duckdb's errors about the file (not those about a query) told apart."""
        path = path or self.path
        if read_only and not path.exists():
            raise errors.StoreError(f"there is no database at {path} yet: run Workspace.sync() first")
        with _turns[str(path)]:
            connection = self._open(path, read_only)
            try:
                yield connection
            except duckdb.Error as error:
                self._judge(error, path)
                raise
            finally:
                with contextlib.suppress(duckdb.Error):
                    connection.close()

    def _open(self, path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return duckdb.connect(str(path), read_only=read_only, config=_OFFLINE)
            except duckdb.Error as error:
                if not isinstance(error, duckdb.ConnectionException) and "Could not set lock" not in str(error):
                    self._judge_opening(error, path)
                if time.monotonic() >= deadline:
                    raise errors.StoreError(_name_holder(path, error, self.timeout_s)) from error
            time.sleep(random.uniform(0.02, 0.1))  # noqa: S311 - jitter, not a secret

    def _judge(self, error: duckdb.Error, path: Path) -> None:
        """Raise what an error of duckdb means for the file; answer when it is about the query alone."""
        text = str(error)
        free = shutil.disk_usage(self.workspace).free
        broken = isinstance(error, (duckdb.FatalException, duckdb.InternalException, duckdb.SerializationException))
        if "No space left" in text or (free < _NEARLY_FULL_BYTES and (broken or "write" in text or "commit" in text)):
            raise errors.StoreError(
                f"the disk of {path} is full ({free / 2**20:.1f} MB free): free some space and ask again. Nothing is "
                f"lost: the tables hold nothing that the journal does not. DuckDB says: {text.splitlines()[0]}"
            ) from error
        if isinstance(error, duckdb.OutOfMemoryException):
            raise errors.StoreError(f"DuckDB ran out of memory with {path}: {text}") from error
        if broken or (type(error) in (duckdb.Error, duckdb.IOException) and "Corrupt database file" in text):
            raise _DamagedError(text) from error

    def _judge_opening(self, error: duckdb.Error, path: Path) -> NoReturn:
        """Raise what it means that the file, held by nobody, cannot be opened."""
        self._judge(error, path)
        text = str(error)
        if "version number" in text:
            raise errors.StoreError(
                f"{path} was written by a newer DuckDB than this one ({duckdb.__version__}): {text.splitlines()[0]} "
                "Install that version, or make the tables anew with Workspace.rebuild()."
            ) from error
        if "Permission denied" in text or "Read-only file system" in text or "Too many open files" in text:
            raise errors.StoreError(f"DuckDB cannot open {path}: {text}") from error
        raise _DamagedError(text) from error


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
