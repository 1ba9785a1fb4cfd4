"""When a run ends: small rules that answer a reason, or None; `Steps(50) | WallTime(600)` ends at the first of both."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod

from kernelevolve import errors
from kernelevolve.records import Status
from kernelevolve.search.tree import Tree


@dataclasses.dataclass(frozen=True)
class Spent:
    """What the present run has used."""

    steps: int = 0
    wall_s: float = 0.0


class StopRule(ABC):
    """Asked after every step."""

    @abstractmethod
    def reason(self, tree: Tree, spent: Spent) -> str | None:
        """Why to stop now, in one clause with numbers, or None to go on."""

    def __or__(self, other: StopRule) -> StopRule:
        return FirstOf((*_members(self), *_members(other)))


@dataclasses.dataclass(frozen=True)
class FirstOf(StopRule):
    """Stops when any of its members does."""

    members: tuple[StopRule, ...]

    def reason(self, tree: Tree, spent: Spent) -> str | None:
        """The first member's reason."""
        return next((reason for rule in self.members if (reason := rule.reason(tree, spent))), None)


@dataclasses.dataclass(frozen=True)
class Steps(StopRule):
    """After so many steps of this run."""

    limit: int

    def __post_init__(self) -> None:
        _require_positive("steps", self.limit)

    def reason(self, tree: Tree, spent: Spent) -> str | None:
        """When the steps are used up."""
        return f"{spent.steps} steps done" if spent.steps >= self.limit else None


@dataclasses.dataclass(frozen=True)
class WallTime(StopRule):
    """After so many seconds of this run; the candidate under way is brought to its end."""

    limit_s: float

    def __post_init__(self) -> None:
        _require_positive("wall_s", self.limit_s)

    def reason(self, tree: Tree, spent: Spent) -> str | None:
        """When the time is used up."""
        return f"{spent.wall_s:.0f} s used of {self.limit_s:g} s" if spent.wall_s >= self.limit_s else None


@dataclasses.dataclass(frozen=True)
class Target(StopRule):
    """When the best node is so many times as fast as the reference."""

    ratio: float

    def __post_init__(self) -> None:
        _require_positive("target", self.ratio)

    def reason(self, tree: Tree, spent: Spent) -> str | None:
        """When the best has it."""
        best = tree.best
        if best is None or tree.score(best.number) < self.ratio:
            return None
        return f"node {best.number} reached {tree.score(best.number):.2f}x, the target was {self.ratio:g}x"


@dataclasses.dataclass(frozen=True)
class Stall(StopRule):
    """When so many nodes in a row brought no new best. A normal end: nothing better was found."""

    steps: int

    def __post_init__(self) -> None:
        _require_positive("stall", self.steps)

    def reason(self, tree: Tree, spent: Spent) -> str | None:
        """When the last improvement lies too far back."""
        best = tree.best
        idle = len(tree) - (best.number if best else 0)
        return f"no improvement in the last {idle} nodes" if min(idle, spent.steps) >= self.steps else None


@dataclasses.dataclass(frozen=True)
class BoundReached(StopRule):
    """When the best node runs within a share of the physical bound: there is little left to win."""

    share: float = 0.9

    def __post_init__(self) -> None:
        _require_positive("share of the bound", self.share)

    def reason(self, tree: Tree, spent: Spent) -> str | None:
        """When bound / time reaches the share."""
        best = tree.best
        timing = next((t for t in best.result.timings if t.name == "candidate"), None) if best else None
        if best is None or timing is None or best.result.bound_ms <= 0:
            return None
        share = best.result.bound_ms / timing.median_ms
        return f"node {best.number} runs at {share:.0%} of the physical bound" if share >= self.share else None


@dataclasses.dataclass(frozen=True)
class HarnessFailing(StopRule):
    """When this package itself failed so many times in a row; going on would only burn the budget."""

    limit: int = 3

    def reason(self, tree: Tree, spent: Spent) -> str | None:
        """When the last nodes all have the status harness_error."""
        last = tree.nodes[-self.limit :]
        if min(len(last), spent.steps) < self.limit or any(n.status is not Status.HARNESS_ERROR for n in last):
            return None
        return f"this package failed {self.limit} times in a row: {last[-1].result.detail}"


def _members(rule: StopRule) -> tuple[StopRule, ...]:
    return rule.members if isinstance(rule, FirstOf) else (rule,)


def _require_positive(name: str, value: float) -> None:
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise errors.SettingError(f"{name} must be a number above 0; got {value!r}")
