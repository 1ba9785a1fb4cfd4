"""Did the library do the work? Two logs of operators compared: the reference's own, and a candidate's.

A kernel may leave some of the problem in PyTorch. It may not leave all of it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHARE = 0.9
"""A candidate that leaves this much of the reference's work, counted in elements read, in the library is a fallback."""
PART = 0.5
"""An operator counts as left in the library when it read at least this share of what it reads in the reference."""
OWN_SHARE = 0.75
"""The same in another spelling: outputs that library operators alone have made, with at least this much reading."""
MAX_OPERATORS = 200


def counts(log: Any) -> dict[str, int]:
    """The operators of a log, from whoever wrote it: names and how often each ran."""
    found = log.get("counts") if isinstance(log, Mapping) else None
    return _numbers(found)


def fallback(reference: Mapping[str, Any], log: Any) -> str:
    """Why a candidate that is no PyTorch program is none of its own either; empty when it is.

    Args:
        reference: The log of the problem's own model.
        log: What the candidate's process says about one call; a malformed log is none.
    """
    if not isinstance(log, Mapping):
        return ""
    compiled = log.get("compiled", 0)
    if isinstance(compiled, int) and compiled > 0:
        return (f"fallback: torch.compile translated {compiled} functions in its process; expected kernels of its own, "
                "or language='pytorch'")
    base, mine = _numbers(reference.get("elements")), _numbers(log.get("elements"))
    work = sum(base.values())
    if not work:
        return ""
    done = sum(min(n, mine.get(name, 0)) for name, n in base.items())
    every = all(mine.get(name, 0) >= PART * n for name, n in base.items())
    names = ", ".join(f"{name} {n}" for name, n in list(counts(log).items())[:8])
    if every and done >= SHARE * work:
        return (f"fallback: every operator of the reference ran in PyTorch's library ({names}); "
                "own kernels contributed nothing")
    if log.get("library_only") is True and sum(mine.values()) >= OWN_SHARE * work:
        return (f"fallback: the outputs were made by PyTorch's library alone ({names}); what own kernels wrote, if "
                "anything, is not in them")
    return ""


def _numbers(value: Any) -> dict[str, int]:
    if not isinstance(value, Mapping):
        return {}
    found = {k: v for k, v in list(value.items())[:MAX_OPERATORS] if isinstance(k, str) and type(v) is int and v > 0}
    return {k[:100]: min(v, 2**62) for k, v in found.items()}
