"""What a profiler is: one part of a profile, in one file. Everything else in this folder is built on these names."""

from __future__ import annotations

import abc
import collections
import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from kernelevolve.records import Problem, Result

T = TypeVar("T")

MAX_BUILD_DEPTH = 3
"""How deep below the build folder a library is looked for: <folder>/<hash>/kernel.so is the usual place."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is profiled: a candidate that was built and timed, and what is known of its machine and its problem."""

    build_dir: Path
    result: Result
    facts: Mapping[str, Any]
    problem: Problem

    def find(self, name: str) -> Path | None:
        """The newest regular file of that name in the build folder, or None. Named pipes and devices do not count."""
        patterns = ["/".join(["*"] * depth + [name]) for depth in range(MAX_BUILD_DEPTH + 1)]
        found = [path for pattern in patterns for path in self.build_dir.glob(pattern) if path.is_file()]
        return max(found, key=lambda path: path.stat().st_mtime, default=None)


class Profiler(abc.ABC):
    """One part of a profile. It must be cheap, bounded in time and silent; what it cannot see it says, never guesses.

    `measure` answers plain JSON values. Absence is an answer: `missing("why")`. A tool that is not installed raises
    `errors.MissingDependencyError`; the part then reads as missing with that message.
    """

    name: str
    """Key of this part in the profile."""

    @abc.abstractmethod
    def applies(self, subject: Subject) -> bool:
        """Whether this part has anything to say about that language and platform."""

    @abc.abstractmethod
    def measure(self, subject: Subject) -> dict[str, Any]:
        """The part, as JSON values with units in the keys."""


def missing(reason: str) -> dict[str, Any]:
    """The part that could not be had, with the reason."""
    return {"missing": reason}


class ContentCache(Generic[T]):
    """The last few answers by a hash of what they depend on, so that equal code is analysed once per process."""

    def __init__(self, size: int = 128) -> None:
        self._size = size
        self._answers: collections.OrderedDict[str, T] = collections.OrderedDict()

    def get(self, contents: tuple[bytes, ...], compute: Callable[[], T]) -> T:
        """The stored answer for these contents, or a new one. A failure is not stored."""
        digest = hashlib.sha256()
        for content in contents:
            digest.update(len(content).to_bytes(8, "little") + content)
        key = digest.hexdigest()
        if key not in self._answers:
            self._answers[key] = compute()
            if len(self._answers) > self._size:
                self._answers.popitem(last=False)
        self._answers.move_to_end(key)
        return self._answers[key]
