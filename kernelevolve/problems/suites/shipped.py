"""The problems that come with this package: operators of its own writing, at sizes that matter on a CPU."""

from __future__ import annotations

from pathlib import Path

import kernelevolve
from kernelevolve import errors
from kernelevolve.problems.suites.folder import FolderSuite


def cpu() -> FolderSuite:
    """The suite "cpu". Its version is this package's."""
    package = Path(kernelevolve.__file__).parent
    # A wheel carries the files inside the package (pyproject's force-include); a checkout has them beside it.
    places = [package / "problems" / "shipped" / "cpu", package.parent / "benchmarks" / "problems" / "cpu"]
    for place in places:
        if place.is_dir():
            return FolderSuite(place, name="cpu", version=kernelevolve.__version__)
    raise errors.ProblemError(f"the shipped problems are in neither {places[0]} nor {places[1]}; reinstall the package")
