"""Where a run's time went, so that what the framework itself costs can be stated."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping

MEASURING = ("build", "check", "time", "wait", "profile", "baseline", "confirm")
"""Parts in which candidates and references are built, checked and measured, or wait for the device while another
process measures; all else is the framework's."""


class Accounts:
    """Wall seconds by part of the loop since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @property
    def wall_s(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._began

    @property
    def framework_share(self) -> float:
        """Share of the wall time outside build, check, time and profile of candidates and references."""
        wall = self.wall_s
        return max(0.0, 1 - sum(self.seconds.get(part, 0.0) for part in MEASURING) / wall) if wall > 0 else 0.0

    def add(self, part: str, seconds: float) -> None:
        """Book seconds under a part."""
        self.seconds[part] = self.seconds.get(part, 0.0) + seconds

    @contextlib.contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Book the time of this block under a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(part, time.perf_counter() - began)

    def split(self, part: str, stage_s: Mapping[str, float]) -> None:
        """Move seconds that were booked under `part` to the stages they were spent in."""
        for stage, seconds in stage_s.items():
            self.add(stage, seconds)
            self.add(part, -seconds)


@dataclasses.dataclass(frozen=True)
class Run:
    """What one call of `Study.run` did."""

    study: str = ""
    reason: str = ""
    """Why it ended."""
    steps: int = 0
    wall_s: float = 0.0
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Nodes of the whole study by status."""
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Wall seconds by part of the loop."""
    framework_share: float = 0.0
    best: int | None = None
    """Number of the best node, None while none is correct."""
    ratio: float = 0.0
    """Its ratio to the reference, the confirmed one where there is one; 0 without a best node."""

    def __repr__(self) -> str:
        best = f"best is node {self.best} at {self.ratio:.2f}x" if self.best else "nothing correct yet"
        return f"<Run of {self.study!r}: {self.steps} steps in {self.wall_s:.1f} s, {best}; {self.reason}>"

    def _repr_html_(self) -> str:
        from kernelevolve import show

        return show.run_html(self)
