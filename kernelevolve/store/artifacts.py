"""Texts by content: sources, logs and profiles, each stored once under its SHA-256; candidates also as plain files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kernelevolve import errors
from kernelevolve.store.disk import explained, write_atomic

# Candidates print what they like: text that is no UTF-8 was decoded with lone surrogates and must come back the same.
_CODEC = ("utf-8", "surrogatepass")


class Artifacts:
    """`path/sha256/ab/abcd…` holds a text by its hash; `path/<study>/node_0007.py` is candidate 7 of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, text: str) -> str:
        """Store a text, durable on return; answers its hash. The same text is stored once."""
        data = text.encode(*_CODEC)
        digest = hashlib.sha256(data).hexdigest()
        path = self._locate(digest)
        if not path.exists() or path.stat().st_size != len(data):
            write_atomic(path, data)
        return digest

    def get(self, digest: str) -> str:
        """The text with that hash. Raises StoreError when it is missing or is not what was stored."""
        path = self._locate(digest)
        with explained(path, "read"):
            data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise errors.StoreError(
                f"the artifact {path} is damaged: its content no longer has the hash in its name. "
                "Restore it from a copy of the workspace, or delete it and evaluate the candidate again."
            )
        return data.decode(*_CODEC)

    def candidate_path(self, study_folder: str, number: int) -> Path:
        """Where candidate `number` of a study is a file that a person can open."""
        return self.path / study_folder / f"node_{number:04d}.py"

    def write_candidate(self, study_folder: str, number: int, source: str) -> Path:
        """Write that file (a copy: whoever edits or loses it does not touch the record)."""
        path = self.candidate_path(study_folder, number)
        write_atomic(path, source.encode(*_CODEC), durable=False)
        return path

    def _locate(self, digest: str) -> Path:
        return self.path / "sha256" / digest[:2] / digest
