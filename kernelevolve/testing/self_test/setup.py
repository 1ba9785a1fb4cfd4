"""What every part of the self-test shares: the level under test, limits, controls, and where rows go."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelevolve.errors import SettingError
from kernelevolve.evaluation import Evaluator, isolation
from kernelevolve.platforms import Platform
from kernelevolve.records import Problem, Proposal, Result
from kernelevolve.settings import Settings
from kernelevolve.testing import villains
from kernelevolve.testing.self_test.record import Outcome, Row

BAND = {"cpu": 0.10}
"""Largest change of the control's ratio to eager after a villain, where the noise floor is not larger."""
GPU_BAND = 0.03


@dataclasses.dataclass
class Setup:
    """One self-test under way."""

    platform: Platform
    isolation: str
    scratch: Path
    quick: bool
    told: Callable[[Row], None] | None = None
    folder: Path | None = None
    """The user's own villains and their problems."""
    read_source: bool = True
    rows: list[Row] = dataclasses.field(default_factory=list)
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    before: set[int] = dataclasses.field(default_factory=set)
    """Processes of this one that stand between evaluations: what is beyond them was left over."""

    def add(self, row: Row) -> None:
        """Keep a row and tell whoever waits for it."""
        self.rows.append(row)
        if self.told is not None:
            self.told(row)

    def claim(self, part: str, name: str, *, passed: bool, expected: str, got: str, **more: Any) -> None:
        """Add a row that passed or failed."""
        outcome = Outcome.PASSED if passed else Outcome.FAILED
        self.add(Row(part, name, expected, got, outcome, **more))

    def settings(self, **changes: Any) -> Settings:
        """Limits that fit small problems, at the level under test."""
        limits: dict[str, Any] = {
            "baselines": ("eager",), "rounds": 12, "time_s": 0.3, "baseline_time_s": 0.5 if self.quick else 1.0,
            "call_timeout_s": 2.0, "build_timeout_s": 6.0 if self.quick else 10.0, "output_bytes": 8 * 2**20,
            "isolation": self.isolation, "read_source": self.read_source,
        }
        if self.platform.name != "cpu":  # a context takes a second, a device's compiler half a minute
            limits |= {"call_timeout_s": 5.0, "build_timeout_s": 60.0}
        return Settings(**(limits | changes))

    @contextlib.contextmanager
    def evaluator(self, problem: str, **changes: Any) -> Iterator[Evaluator]:
        """An evaluator for a problem's source, started, whose folders are below `scratch`."""
        record = Problem(id="self-test/problem", source=problem, code_hash="0")
        with Evaluator(record, platform=self.platform.name, settings=self.settings(**changes),
                       scratch=self.scratch) as evaluator:
            baseline = evaluator.start()
            self.environment = self.environment or dict(baseline.environment)
            yield evaluator

    @property
    def band(self) -> float:
        """The control's band on this platform, as a share of 1."""
        return BAND.get(self.platform.name, GPU_BAND)


def level_in_use(asked: str) -> str:
    """The level that `asked` means here. Raises SettingError where it is not available; takes no weaker one."""
    if asked != "auto":
        isolation.get(asked)
        if asked not in villains.LEVELS:
            raise SettingError(f"isolation level {asked!r}: the villains know {', '.join(villains.LEVELS)}")
        return asked
    wall = isolation.LEVELS.get("bubblewrap")
    return "bubblewrap" if wall is not None and wall.available()[0] else "process"


def control(setup: Setup, problem: str) -> str:
    """An honest candidate for a villains' problem: the shipped kernel of the platform, else PyTorch's own."""
    if setup.platform.name == "cpu":
        return villains.good_source(problem, setup.folder)
    place = Path(villains.__file__).parent / "controls" / setup.platform.name / f"{problem}.py"
    if setup.folder is None and place.is_file():
        return place.read_text(encoding="utf-8")
    return villains.control_source(problem, setup.folder)


def evaluate(evaluator: Evaluator, source: str) -> tuple[Result, float]:
    """One verdict, and the wall seconds it took."""
    begin = time.monotonic()
    result = evaluator.evaluate(Proposal(source=source, language="", operator="self-test"))
    return result, time.monotonic() - begin
