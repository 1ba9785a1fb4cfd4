"""Selections and sorting along one dimension."""

from __future__ import annotations

from collections.abc import Mapping

from kernelevolve.operators.template.graph import Value
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers

LONGEST = 8192
"""Longer rows stay in PyTorch, whose radix sort is hard to beat."""


@lowers("aten.topk")
def topk(b: Builder, c: Call) -> tuple[str, ...] | None:
    """The k largest or smallest, best first, with positions."""
    return _select(b, c, "topk", {"k": c["k"], "largest": bool(c.get("largest", True)), "sorted": True})


@lowers("aten.sort")
def sort(b: Builder, c: Call) -> tuple[str, ...] | None:
    """A stable sort with positions."""
    return _select(b, c, "sort", {"descending": bool(c.get("descending", False)), "stable": True})


@lowers("aten.argsort")
def argsort(b: Builder, c: Call) -> str | None:
    """Positions alone."""
    attrs = {"descending": bool(c.get("descending", False)), "stable": True}
    found = _select(b, c, "sort", attrs, (b.fresh(f"{c.name}_values"), c.outputs[0]))
    return None if found is None else found[1]


def _select(
    b: Builder, c: Call, kind: str, attrs: Mapping[str, object], names: tuple[str, ...] | None = None
) -> tuple[str, ...] | None:
    x, shape = c["self"], b.sizes(c["self"])
    if b.dtype(x) not in ("float32", "int32") or not shape or 0 in (*shape, *c.shape):
        return None
    dim = c.get("dim", -1) % len(shape)
    if shape[dim] > LONGEST:
        return None
    names = names or c.outputs
    outputs = [Value(names[0], c.shape, b.dtype(x)), Value(names[1], c.shape, "int64")]
    b.add(kind, [b.materialised(x)], outputs, {"dim": dim, **attrs}, c.target)
    return names
