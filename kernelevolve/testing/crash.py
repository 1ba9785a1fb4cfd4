"""Crash points: places where the process kills itself (SIGKILL) when it passes them for the n-th time.

The variable KERNELEVOLVE_CRASH_AT says where:

- `7`: at the 7th step of any kind
- `journal:7`: at the 7th step whose name begins with "journal" ("journal.append", "journal.written", …)
- `0`: nowhere; the steps are only counted (`passed`)

The code calls `step(name)` at every place where dying could lose or double something, and `tear` where a line is
written, which then writes half of it. Unset, a step costs one comparison. Standard library only: workers import it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

VARIABLE = "KERNELEVOLVE_CRASH_AT"


class _Switch:
    def __init__(self, where: str) -> None:
        self.kind, _, number = where.rpartition(":")
        if not number.isdecimal():
            raise ValueError(
                f'{VARIABLE} is a number of steps or a kind and a number, such as "7" or "journal:7"; got {where!r}'
            )
        self.number = int(number)
        self.count = 0
        self.names: list[str] = []

    def passes(self, name: str) -> bool:
        """Count a step; says whether it is the one to die at."""
        self.names.append(name)
        self.count += name.startswith(self.kind)
        return self.count == self.number and name.startswith(self.kind)


def _read(where: str) -> _Switch | None:
    return _Switch(where) if where else None


_switch = _read(os.environ.get(VARIABLE, ""))


def arm(where: str) -> None:
    """Set the switch of this process, with the count at zero; "" takes it away."""
    global _switch
    _switch = _read(where)


def passed() -> list[str]:
    """Names of the steps since the switch was set, in order; empty without a switch."""
    return list(_switch.names) if _switch else []


def step(name: str) -> None:
    """A place where the process may be told to die; `name` is "kind.place"."""
    if _switch is not None and _switch.passes(name):
        _die()


def tear(name: str, data: bytes, write: Callable[[bytes], object]) -> None:
    """A step that, when it is the one, writes the first half of `data` before the process dies."""
    if _switch is not None and _switch.passes(name):
        write(data[: len(data) // 2])
        _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
