"""What a suite is: names that lead to problem files."""

from __future__ import annotations

import abc
import difflib
import subprocess
from pathlib import Path

from kernelevolve import errors


class Suite(abc.ABC):
    """A named collection of problem files. Listing it reads folder names only; no file is imported."""

    name: str

    @abc.abstractmethod
    def paths(self) -> dict[str, Path]:
        """Every problem's name within the suite ("rms_norm", "1/23") and its file, in the order to show them."""

    def version(self) -> str:
        """Which edition of the files this is, stored with every result; empty when unknown."""
        return ""

    def ids(self) -> list[str]:
        """Full ids, "suite/name"."""
        return [f"{self.name}/{name}" for name in self.paths()]

    def path(self, name: str) -> Path:
        """The file of one problem. Raises ProblemError that names the closest ones."""
        paths = self.paths()
        if name not in paths:
            near = difflib.get_close_matches(name, paths, n=3, cutoff=0.4)
            hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(list(paths)[:8]) or 'none'}"
            raise errors.ProblemError(f"suite {self.name!r} has no problem {name!r} among its {len(paths)}; {hint}")
        return paths[name]


def commit(folder: Path) -> str:
    """`git describe` of the checkout that holds the folder; empty without git or outside a checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "describe", "--tags", "--always", "--dirty"],
            capture_output=True, text=True, timeout=10, check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
