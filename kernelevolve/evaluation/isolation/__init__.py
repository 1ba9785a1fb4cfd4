"""Isolation levels: one file each, and one line here."""

from kernelevolve.errors import SettingError, UnknownNameError
from kernelevolve.evaluation.isolation.base import Isolation
from kernelevolve.evaluation.isolation.process import Process

LEVELS: dict[str, Isolation] = {level.name: level for level in (Process(),)}


def get(name: str) -> Isolation:
    """The level called `name`. Raises UnknownNameError or SettingError; never falls back to a weaker one."""
    if name not in LEVELS:
        raise UnknownNameError("isolation level", name, list(LEVELS))
    here, reason = LEVELS[name].available()
    if not here:
        raise SettingError(f"isolation level {name!r} is not available here: {reason}. No weaker one is taken instead.")
    return LEVELS[name]


__all__ = ["LEVELS", "Isolation", "get"]
