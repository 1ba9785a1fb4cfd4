"""What an isolation level does: turn the arguments that start a candidate's process into stricter ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Isolation(ABC):
    """A wall around a candidate's process. The level used is stored with every result and never lowered silently."""

    name: str

    @abstractmethod
    def available(self) -> tuple[bool, str]:
        """Whether this machine offers it, and the reason when not."""

    @abstractmethod
    def wrap(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments of `workers.start` (env, cwd, limits) for a process behind this wall."""
