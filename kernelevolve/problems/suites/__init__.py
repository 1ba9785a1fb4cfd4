"""Suites: named collections of problem files. One file and one line in `SUITES` each; see `base.Suite`.

Installed packages add theirs through the entry-point group `kernelevolve.suites`: the entry point names a
callable without arguments (a class will do) that returns a `Suite`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

from kernelevolve import errors
from kernelevolve.problems.suites.base import Suite
from kernelevolve.problems.suites.folder import FolderSuite
from kernelevolve.problems.suites.kernelbench import KernelBenchSuite
from kernelevolve.problems.suites.shipped import cpu

SUITES: dict[str, Callable[[], Suite]] = {
    "cpu": cpu,
    "kernelbench": KernelBenchSuite,
}

ENTRY_POINTS = "kernelevolve.suites"

__all__ = ["SUITES", "FolderSuite", "KernelBenchSuite", "Suite", "find", "names"]


def names() -> list[str]:
    """Names of the built-in suites and of those that installed packages register, sorted."""
    return sorted(SUITES.keys() | {entry.name for entry in metadata.entry_points(group=ENTRY_POINTS)})


def find(name: str) -> Suite:
    """The suite of that name. Raises UnknownNameError, or the suite's own error when its files are absent."""
    if name in SUITES:
        return SUITES[name]()
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if entry.name == name:
            return entry.load()()
    raise errors.UnknownNameError("problem suite", name, names())
