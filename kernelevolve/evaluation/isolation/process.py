"""A process group of its own with resource limits: a guard against accidents, not against intent."""

from __future__ import annotations

from typing import Any

from kernelevolve.evaluation.isolation.base import Isolation


class Process(Isolation):
    """The same user can still read this user's files and memory."""

    name = "process"

    def available(self) -> tuple[bool, str]:
        """Everywhere."""
        return True, ""

    def wrap(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Nothing to add: `workers.start` already gives a session, limits and a bounded log."""
        return arguments
