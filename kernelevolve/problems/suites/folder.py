"""A folder of problem files as a suite: every `*.py` that does not begin with an underscore."""

from __future__ import annotations

from pathlib import Path

from kernelevolve import errors
from kernelevolve.problems.suites.base import Suite, commit


class FolderSuite(Suite):
    """The problem files of one folder, named by their file names.

    Args:
        root: The folder; its subfolders are not searched.
        name: The suite's name; the folder's own by default.
        version: Edition of the files; `git describe` by default.
    """

    def __init__(self, root: Path, *, name: str = "", version: str | None = None) -> None:
        if not root.is_dir():
            raise errors.ProblemError(f"{root} is no folder; expected one that holds problem files")
        self.root = root
        self.name = name or root.resolve().name
        self._version = version

    def paths(self) -> dict[str, Path]:
        """File names without the ending, sorted."""
        return {p.stem: p for p in sorted(self.root.glob("*.py")) if not p.name.startswith("_")}

    def version(self) -> str:
        """As given, else `git describe`."""
        return commit(self.root) if self._version is None else self._version
