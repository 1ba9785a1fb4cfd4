"""Isolation levels: one file each, and one line here."""

from kernelevolve.errors import SettingError, UnknownNameError
from kernelevolve.evaluation.isolation.base import Enclosure, Isolation, Room
from kernelevolve.evaluation.isolation.bubblewrap import Bubblewrap
from kernelevolve.evaluation.isolation.container import Container
from kernelevolve.evaluation.isolation.process import Process

LEVELS: dict[str, Isolation] = {level.name: level for level in (Process(), Bubblewrap(), Container())}
AUTO = ("bubblewrap", "process")
"""What "auto" takes: the first that is available."""


def get(name: str) -> Isolation:
    """The level called `name`, or for "auto" the one that this machine offers.

    Raises UnknownNameError or SettingError; a level that is named is never exchanged for a weaker one.
    """
    if name == "auto":
        return next(LEVELS[level] for level in AUTO if LEVELS[level].available()[0])
    if name not in LEVELS:
        raise UnknownNameError("isolation level", name, [*LEVELS, "auto"])
    here, reason = LEVELS[name].available()
    if not here:
        raise SettingError(f"isolation level {name!r} is not available here: {reason}. No weaker one is taken instead.")
    return LEVELS[name]


__all__ = ["AUTO", "LEVELS", "Enclosure", "Isolation", "Room", "get"]
