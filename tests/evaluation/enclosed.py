"""Candidates of these tests, started at an isolation level without judge and baselines."""

import json
import os
from pathlib import Path

import pytest

from kernelevolve.evaluation import isolation
from kernelevolve.evaluation.candidate import Candidate, EndedError
from kernelevolve.settings import Settings
from kernelevolve.workers import pool

MARK = "<told>"
MEMORY_FILES_BYTES = 16 * 2**20


class Enclosed:
    """An isolation level opened over `root`; ends and closes every candidate it started."""

    def __init__(self, root: Path, level: str) -> None:
        self.root = root.resolve()
        self.enclosure = isolation.get(level).open(isolation.Room(
            root=self.root, memory_bytes=4 * 2**30, tasks=600, memory_files_bytes=MEMORY_FILES_BYTES))
        self.candidates = []

    def start(self, source: str, *, memory_bytes: int = 4 * 2**30, own_limit: bool = True, **settings) -> Candidate:
        """A started candidate. Without `own_limit` no single process of it has a limit on its memory."""
        candidate = Candidate(source, "pytorch", Settings(build_timeout_s=30, **settings), 2,
                              4 * 2**30 if own_limit is False else memory_bytes, self.root, "cpu", self.enclosure)
        self.candidates.append(candidate)
        candidate.start()
        candidate.memory_bytes = memory_bytes
        return candidate

    def told(self, source: str):
        """What `source` assigned to `tell`, as JSON, when a candidate ran it."""
        candidate = self.start(f"import json\n{source}\nraise RuntimeError({MARK!r} + json.dumps(tell) + {MARK!r})\n")
        with pytest.raises(EndedError) as ended:
            candidate.build()
        candidate.end()
        candidate.close()
        parts = ended.value.verdict.detail.split(MARK)
        assert len(parts) >= 3, ended.value.verdict.detail
        return json.loads(parts[1])

    def server_pid(self) -> int:
        """The fork server of plain workers."""
        return pool._get_server().process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for candidate in self.candidates:
            candidate.end()
            candidate.close()
        self.enclosure.close()


def running(word: str) -> list[int]:
    """Processes of this machine that have `word` among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in arguments:
                found.append(int(entry.name))
    return found
