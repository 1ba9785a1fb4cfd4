"""How a candidate is written.

An operator is one file or folder here and one line in `_BUILT_IN`, or a class in another package under the entry
point group `kernelevolve.operators`. Members: `template` (needs no key), `hand` (the engineer's own).
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any

from kernelevolve import errors
from kernelevolve.operators.base import Operator, genome_key, keys, keys_from, source_key, stamped_keys

# By location, so that what an operator needs is imported when it is used.
_BUILT_IN = {
    "template": "kernelevolve.operators.template.operator:TemplateOperator",
    "hand": "kernelevolve.operators.hand:Hand",
}

__all__ = ["Operator", "create", "genome_key", "keys", "keys_from", "known", "source_key", "stamped_keys"]


def known() -> list[str]:
    """Names of all operators, those of other packages included."""
    return sorted({*_BUILT_IN, *(e.name for e in entry_points(group="kernelevolve.operators"))})


def create(operator: str | Operator, **parameters: Any) -> Operator:
    """A fresh operator by name; an instance is passed through. Raises UnknownNameError."""
    if isinstance(operator, Operator):
        return operator
    if operator in _BUILT_IN:
        module, _, name = _BUILT_IN[operator].partition(":")
        kind = getattr(importlib.import_module(module), name)
    else:
        found = [e for e in entry_points(group="kernelevolve.operators") if e.name == operator]
        if not found:
            raise errors.UnknownNameError("operator", operator, known())
        kind = found[0].load()
    made: Operator = kind(**parameters)
    return made
