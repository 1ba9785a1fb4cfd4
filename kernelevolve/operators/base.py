"""The base of all operators, and the keys by which two proposals count as the same."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from kernelevolve.records import Context, Problem, Proposal


class Operator(ABC):
    """Writes candidates.

    `prepare` is called once per process, before the first `write`; what it learns there must depend on its arguments
    alone. `write` answers a proposal for any context, with `failure` set when it has nothing to offer; its
    randomness comes from `context.seed`, so that the same context gives the same proposal. It should not propose
    what `context.tried` names.
    """

    name: ClassVar[str]

    def prepare(self, problem: Problem, facts: Mapping[str, Any]) -> None:  # noqa: B027 - some need nothing
        """Get to know the problem and the platform's facts. Raises NotCoveredError when it can do nothing for it."""

    @abstractmethod
    def write(self, context: Context) -> Proposal:
        """A candidate for this context."""


_KEYS_BY = f"1/python{sys.version_info[0]}.{sys.version_info[1]}"
"""Syntax trees are written differently by different versions; the number before is that of `source_key`'s rule."""


def source_key(source: str) -> str:
    """Identity of a program: SHA-256 of its syntax tree without docstrings (layout and comments do not count)."""
    try:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                node.body = _without_docstring(node.body)
        text = ast.dump(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = source.strip()
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def genome_key(genome: Mapping[str, Any]) -> str:
    """Identity of a genome: SHA-256 of its JSON with sorted keys."""
    text = json.dumps(genome, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def keys(proposal: Proposal) -> tuple[str, ...]:
    """What `Context.tried` holds of a proposal: its source's key and, where it has a genome, that one's."""
    found = (source_key(proposal.source),) if proposal.source else ()
    return found if proposal.genome is None else (*found, genome_key(proposal.genome))


def stamped_keys(proposal: Proposal) -> dict[str, Any]:
    """The keys as the journal keeps them, with a mark of what made them: parsing 10,000 programs anew takes 15 s."""
    return {"by": _KEYS_BY, "keys": list(keys(proposal))}


def keys_from(stamped: Mapping[str, Any] | None, proposal: Proposal) -> tuple[str, ...]:
    """Keys as they were kept, or made anew where another version of Python or of this package made those."""
    return tuple(stamped["keys"]) if stamped and stamped.get("by") == _KEYS_BY else keys(proposal)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0] if body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:]
    return body
