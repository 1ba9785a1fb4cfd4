"""Cumulative operators along one dimension."""

from __future__ import annotations

from kernelevolve.operators.template.expr import cast
from kernelevolve.operators.template.graph import Value
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers
from kernelevolve.operators.template.lower.unused import is_unused

NUMBERS = ("float32", "float64", "int64", "int32")


@lowers("aten.cumsum", "aten.cumprod")
def cumulative(b: Builder, c: Call) -> str | None:
    """Running sums and products; integers and bools are widened to int64 as torch does."""
    return _scan(b, c, "sum" if "cumsum" in c.target else "prod", c.dtype)


@lowers("aten.cummax", "aten.cummin")
def extremes(b: Builder, c: Call) -> tuple[str, ...] | None:
    """Running maxima and minima; their positions only where nobody reads them."""
    if not is_unused(b, c.outputs[1]):
        return None
    found = _scan(b, c, "max" if "cummax" in c.target else "min", b.dtype(c["self"]))
    return None if found is None else (found, c.outputs[1])


def _scan(b: Builder, c: Call, op: str, dtype: str) -> str | None:
    x, shape = c["self"], b.sizes(c["self"])
    if dtype not in NUMBERS or not shape or 0 in shape:
        return None
    if b.dtype(x) != dtype:
        x = b.pointwise(b.fresh(f"{c.name}_input"), cast(b.arg(x), dtype), shape)
    attrs = {"op": op, "dim": c["dim"] % len(shape), "reverse": False, "exclusive": False}
    return b.add("scan", [b.materialised(x)], [Value(c.outputs[0], shape, dtype)], attrs, c.target)
