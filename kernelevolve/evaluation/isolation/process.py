"""A session of its own with limits and fewer privileges: a guard against accidents, not against intent."""

from __future__ import annotations

from kernelevolve.evaluation.isolation.base import Enclosure, Isolation, Room


class Process(Isolation):
    """The same user's files and network stay within reach."""

    name = "process"

    def available(self) -> tuple[bool, str]:
        """Everywhere."""
        return True, ""

    def open(self, room: Room) -> Enclosure:
        """Nothing to set up: candidates are forked from the server that judge and baselines come from."""
        return Enclosure()
