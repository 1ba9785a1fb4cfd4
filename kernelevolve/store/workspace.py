"""A workspace: the folder that holds everything which happened.

- `journal/<study>/<writer>.jsonl`: the truth
- `artifacts/sha256/ab/abcd…`: texts by content
- `artifacts/<study>/node_0007.py`: each candidate as a file
- `kernelevolve.duckdb`: tables, rebuilt from the journal at any time
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from pathlib import Path
from typing import Any

import pandas as pd

from kernelevolve import errors, records
from kernelevolve.store import encode, log
from kernelevolve.store.artifacts import Artifacts
from kernelevolve.store.database import Database
from kernelevolve.store.disk import FileLock, explained, require_space, sync_folder
from kernelevolve.store.journal import JournalWriter
from kernelevolve.testing import crash

DEFAULT_FOLDER = "kernelevolve-workspace"
NAME_LIMIT = 200


def study_folder(name: str) -> str:
    """Name of a study's folder: a readable slug and a hash of the exact name, so that no name is ever a path.

    Raises StudyError that says which rule a name breaks.
    """
    if not isinstance(name, str) or not name.strip():
        raise errors.StudyError(f"a study's name holds at least one visible character; got {name!r}")
    if len(name) > NAME_LIMIT:
        raise errors.StudyError(f"a study's name has at most {NAME_LIMIT} characters; got {len(name)}")
    for character in name:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise errors.StudyError(
                f"a study's name holds no control characters and no lone surrogates; got {character!r} in {name!r}"
            )
    slug = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-")[:40] or "study"
    return f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class Workspace:
    """A folder of studies. Any number of processes may read and write it at once.

    Args:
        path: The folder, made when it is first written to. Default: the variable KERNELEVOLVE_WORKSPACE, else
            `kernelevolve-workspace` in the current folder.
    """

    def __init__(self, path: str | os.PathLike[str] | Workspace | None = None) -> None:
        chosen = path.path if isinstance(path, Workspace) else path
        chosen = chosen or os.environ.get("KERNELEVOLVE_WORKSPACE") or DEFAULT_FOLDER
        self.path: Path = Path(chosen).expanduser().absolute()
        self.artifacts = Artifacts(self.path / "artifacts")

    @property
    def journal_path(self) -> Path:
        """The folder with one folder per study."""
        return self.path / "journal"

    def create_study(self, header: dict[str, Any]) -> StudyWriter:
        """Begin a study; `header["name"]` must be new. The header is durable on return."""
        name = header["name"]
        folder = self.journal_path / study_folder(name)
        taken = errors.StudyError(
            f"a study named {name!r} is already in {self.path}: "
            f"go on with Study.resume({name!r}), or choose another name"
        )
        if log.read_header(folder):
            raise taken
        with explained(folder, "create"):
            folder.mkdir(parents=True, exist_ok=True)
            require_space(folder)
            crash.step("store.folder")
            sync_folder(self.journal_path)
        writer = StudyWriter(self, name)
        if log.read_header(folder):  # another process began it between the look and the lock
            writer.close()
            raise taken
        try:
            writer.append("study", header)
        except BaseException:
            writer.close()
            raise
        log.copy_header(folder)
        return writer

    def open_study(self, name: str, *, lead: bool = True) -> StudyWriter:
        """Go on writing to a study, in a file of its own.

        Args:
            name: The study's name.
            lead: Whether this writer adds nodes: one process at a time may. Acts need no lead.
        """
        folder = self._find(name)
        if lead:
            require_space(folder)
        writer = StudyWriter(self, name, lead=lead)
        if lead:
            log.copy_header(folder)  # a study that was killed in its first moment has no copy yet
        return writer

    def reserve_name(self, stem: str) -> str:
        """`stem-1`, `stem-2` …: the first that no study has; its folder is made, so that nobody else gets it."""
        number = 1
        while True:
            folder = self.journal_path / study_folder(f"{stem}-{number}")
            with explained(folder, "create"):
                self.journal_path.mkdir(parents=True, exist_ok=True)
                try:
                    folder.mkdir()
                except FileExistsError:
                    number += 1
                    continue
            return f"{stem}-{number}"

    def studies(self) -> list[str]:
        """Names of all studies, oldest first."""
        if not self.journal_path.is_dir():
            return []
        found = []
        for folder in self.journal_path.iterdir():
            if folder.is_dir() and (header := log.read_header(folder)):
                found.append((header["time"], header["name"]))
        return [name for _, name in sorted(found)]

    def study(self, name: str) -> log.StudyLog:
        """A study as its journal tells it now."""
        return log.read_study(self._find(name), self.artifacts)

    def database(self) -> Database:
        """The tables over the journal."""
        return Database(self.path)

    def sync(self) -> int:
        """Bring the tables up to date with the journal; answers how many records were new."""
        return self.database().sync()

    def rebuild(self) -> int:
        """Make the tables anew from the journal; answers how many records they hold."""
        return self.database().rebuild()

    def sql(self, query: str, parameters: list[Any] | dict[str, Any] | None = None) -> pd.DataFrame:
        """Answer a query over the tables (see `store/schema.py`), after a `sync`, by a short read-only connection."""
        return self.database().sql(query, parameters)

    def _find(self, name: str) -> Path:
        folder = self.journal_path / study_folder(name)
        if not folder.is_dir():
            known = self.studies()
            shown = ", ".join(map(repr, known[-8:])) or "none"
            raise errors.StudyError(f"no study named {name!r} in {self.path}; there are {len(known)}: {shown}")
        return folder

    def __repr__(self) -> str:
        return f"<Workspace {str(self.path)!r}: {len(self.studies())} studies>"


class StudyWriter:
    """Adds records to one study; each is in the journal when the call returns (see `journal.DURABLE`)."""

    def __init__(self, workspace: Workspace, name: str, *, lead: bool = True) -> None:
        self.workspace, self.name = workspace, name
        self.folder = study_folder(name)
        path = workspace.journal_path / self.folder
        self._lead = FileLock(path / "lead") if lead else None
        if self._lead and not self._lead.acquire(timeout_s=0.5):
            pid = self._lead.holder()
            where = "this process" if pid == os.getpid() else f"process {pid}"
            raise errors.StoreError(
                f"study {name!r} is open in {where}, and one at a time may add nodes: close() it there, or end that "
                "process, and try again. Reading it needs no lock (Workspace.study)."
            )
        self._journal = JournalWriter(path)

    def begin_after(self, time: str) -> None:
        """Date no record before this one, even when the clock went back."""
        self._journal.last_time = max(self._journal.last_time, time)

    def append(self, kind: str, data: dict[str, Any]) -> int:
        """Append one record; durable on return for the kinds in `journal.DURABLE`. Raises StoreError."""
        return self._journal.append(kind, data)

    def append_proposal(self, number: int, proposal: records.Proposal) -> None:
        """The candidate as written, before its evaluation."""
        packed = encode.pack_proposal(proposal, self.workspace.artifacts)
        self.append("proposal", {"number": number, "proposal": packed})

    def append_node(self, node: records.Node, keys: dict[str, Any] | None = None) -> None:
        """The verdict; when this returns the node is acknowledged. `keys` say what counts as the same candidate."""
        if node.source:
            self.workspace.artifacts.write_candidate(self.folder, node.number, node.source)
        packed = encode.pack_node(node, self.workspace.artifacts)
        if keys:
            packed["keys"] = keys
        crash.step("store.packed")
        self.append("node", packed)

    def close(self) -> None:
        """Close the journal's file and let others lead; safe to call twice."""
        self._journal.close()
        if self._lead:
            self._lead.release()
