"""Bad candidates, one act each, with the verdict that evaluation must give them.

Each file in `cpu/` (`cuda/`) is a candidate for a problem of `problems/`. Its first lines say what it must get; see
`header.py`. Every problem has an honest control, which must be measured after each of them as if nothing had happened.
Shipped, so that anyone can run them on their own machine before trusting a verdict made there. A file dropped into a
folder of the user's is one of them too: `load(folder=FOLDER)`.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path

from kernelevolve.errors import SettingError, UnknownNameError
from kernelevolve.records import Status
from kernelevolve.testing.villains import header
from kernelevolve.testing.villains.header import LEVELS, STAGES

_HERE = Path(__file__).parent
Folder = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Villain:
    """A bad candidate."""

    name: str
    source: str
    expect: Status
    stage: str
    """Stage at which it must be caught: "source", "build", "check" or "time"; empty when that does not matter."""
    problem: str = "softmax"
    """Name of the problem that it pretends to solve; see `problem_source`."""
    level: str = "process"
    """Isolation level from which on its act can be stopped; below it the villain must not be run."""
    runtime: Status | None = None
    """What it must get when sources are not read (Settings.read_source=False); `load` always sets it."""
    runtime_stage: str = ""
    settings: Mapping[str, int | float] = dataclasses.field(default_factory=dict)
    """Fields of Settings that it needs changed, such as {"folder_bytes": 16777216}."""

    @property
    def act(self) -> str:
        """What it does, in plain words: the first line of its docstring."""
        match = re.search(r'^"""(.*?)(?:"""|$)', self.source, re.MULTILINE)
        return match[1].strip() if match else ""

    def runs_at(self, level: str) -> bool:
        """Whether an isolation level is strong enough for it to be run there."""
        return LEVELS.index(level) >= LEVELS.index(self.level)


def load(platform: str = "cpu", folder: Folder | None = None) -> list[Villain]:
    """Every shipped villain of a platform, or every one of a folder of the user's; by name.

    Raises:
        SettingError: A header is malformed, or the folder is not there or holds no villain.
    """
    place = _HERE / platform if folder is None else Path(folder)
    if not place.is_dir():
        raise SettingError(f"{place}: expected a folder of villains (NAME.py files), which is not there")
    found = [_read(path) for path in sorted(place.glob("*.py")) if path.name != "__init__.py"]
    if not found:
        raise SettingError(f"{place}: expected at least one villain, a file NAME.py whose first line is such as "
                           "`# expect: wrong_value at check`; found none")
    return found


def problem_source(name: str = "softmax", folder: Folder | None = None) -> str:
    """Source of a problem: `problems/NAME.py` of the user's folder, or the shipped one. Raises UnknownNameError."""
    places = [Path(folder) / "problems"] if folder is not None else []
    places.append(_HERE / "problems")
    for place in places:
        if (place / f"{name}.py").is_file():
            return _text(place / f"{name}.py")
    raise UnknownNameError("problem of villains", name, [path.stem for place in places for path in place.glob("*.py")])


def control_source(name: str = "softmax", folder: Folder | None = None) -> str:
    """A control that needs no compiler and runs on every platform: the problem's own Model, renamed ModelNew."""
    return re.sub(r"\bModel\b", "ModelNew", problem_source(name, folder))


def good_source(name: str = "softmax", folder: Folder | None = None) -> str:
    """The control of a problem, an honest candidate: a C++ kernel for the shipped problems.

    A problem of the user's has the one in `controls/NAME.py` of that folder, or `control_source`.
    """
    own = folder is not None and (Path(folder) / "problems" / f"{name}.py").is_file()
    place = (Path(folder) if own and folder is not None else _HERE) / "controls" / f"{name}.py"
    return _text(place) if place.is_file() else control_source(name, folder)


def _read(path: Path) -> Villain:
    source = _text(path)
    head = header.parse(source, str(path))
    return Villain(path.stem, source, head.expect, head.stage, head.problem, head.level, head.runtime,
                   head.runtime_stage, head.settings)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path}: expected a Python file in UTF-8; {error}") from error


__all__ = ["LEVELS", "STAGES", "Villain", "control_source", "good_source", "load", "problem_source"]
