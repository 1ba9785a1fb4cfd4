"""Selection policies: which node to expand next, and why.

A policy is one file here and one line in `_BUILT_IN`, or a class in another package under the entry point group
`kernelevolve.policies`. Members: `greedy` (the best node, until it stops giving), `random` (any correct node),
`one-shot` (independent drafts only).
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from kernelevolve import errors
from kernelevolve.search.policies.base import Policy
from kernelevolve.search.policies.greedy import Greedy
from kernelevolve.search.policies.one_shot import OneShot
from kernelevolve.search.policies.random import Random

_BUILT_IN: dict[str, type[Policy]] = {p.name: p for p in (Greedy, OneShot, Random)}

__all__ = ["Greedy", "OneShot", "Policy", "Random", "create", "known"]


def known() -> list[str]:
    """Names of all policies, those of other packages included."""
    return sorted({*_BUILT_IN, *(e.name for e in entry_points(group="kernelevolve.policies"))})


def create(policy: str | Policy, **parameters: Any) -> Policy:
    """A fresh policy by name with its parameters; an instance is passed through.

    Raises UnknownNameError for a name nobody registered, SettingError for a parameter it does not have.
    """
    if isinstance(policy, Policy):
        return policy
    kind = _BUILT_IN.get(policy)
    if kind is None:
        found = [e for e in entry_points(group="kernelevolve.policies") if e.name == policy]
        if not found:
            raise errors.UnknownNameError("policy", policy, known())
        kind = found[0].load()
    try:
        return kind(**parameters)
    except TypeError as error:
        raise errors.SettingError(f"policy {policy!r}: {error}; it has {', '.join(kind.parameter_names())}") from error
