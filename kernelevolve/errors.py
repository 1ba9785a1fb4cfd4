"""Every exception a user can meet. One class per mistake; the message says what was expected, what came, what to do.

A candidate's failure is not an exception: it is a `records.Status`. Exceptions are for the engineer's own
input (a problem file, a name, a setting) and for this package's own faults.
"""

from __future__ import annotations


class KernelEvolveError(Exception):
    """Base of all errors of this package. `str(error)` is fit to show to a user as it is."""


class ProblemError(KernelEvolveError):
    """A problem file cannot be used: syntax, a missing name, a reference that is not finite or not repeatable."""


class UnknownNameError(KernelEvolveError):
    """A name is not registered (policy, operator, platform, suite, rule set)."""

    def __init__(self, kind: str, name: object, known: list[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(sorted(known)) or 'none'}")
        self.kind, self.name, self.known = kind, name, known

    def __reduce__(self) -> tuple[type, tuple[str, object, list[str]]]:
        return type(self), (self.kind, self.name, self.known)


class SettingError(KernelEvolveError):
    """An argument or setting has a value that cannot work."""


class MissingDependencyError(KernelEvolveError):
    """An optional package or tool is not installed; the message holds the install line."""


class WorkerError(KernelEvolveError):
    """A process of this package (never a candidate) died or answered nonsense."""


class StoreError(KernelEvolveError):
    """The workspace cannot be read or written: locked, damaged, newer than this version, disk full."""


class StudyError(KernelEvolveError):
    """The study cannot do what was asked: unknown node, nothing correct yet, already finished."""


class NotCoveredError(KernelEvolveError):
    """The template operator has no template for any part of this problem."""
