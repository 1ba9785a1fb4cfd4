"""Operators whose output size depends on data, and reductions over segments of rows."""

from __future__ import annotations

import math

from kernelevolve.operators.template.affine import unravel
from kernelevolve.operators.template.expr import Expr, call, cast, const, index, load
from kernelevolve.operators.template.graph import Value
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers
from kernelevolve.operators.template.lower.pointwise import emit
from kernelevolve.operators.template.lower.unused import is_unused


def masked_rows(b: Builder, c: Call, mask: str) -> str | None:
    """self[mask]: the mask covers the first dimensions; what is behind it is a row."""
    x, shape, covered = c["self"], b.sizes(c["self"]), b.sizes(mask)
    if shape[: len(covered)] != covered or not covered or 0 in shape:
        return None
    return compacted(b, c, x, mask, (math.prod(covered), *shape[len(covered) :]))


def compacted(b: Builder, c: Call, x: str, mask: str, shape: tuple[int, ...]) -> str | None:
    """Rows of `x`, seen as `shape`, where `mask`, seen as one dimension, holds; None when their number is known."""
    if not c.shape or isinstance(c.shape[0], int):
        return None
    if b.sizes(x) != shape:
        x = b.reshape(b.fresh(f"{c.name}_rows"), x, shape)
    if len(b.sizes(mask)) != 1:
        mask = b.reshape(b.fresh(f"{c.name}_mask"), mask, shape[:1])
    inputs = [b.materialised(x), b.materialised(mask)]
    return b.add("compact", inputs, [Value(c.name, c.shape, c.dtype)], {}, c.target)


@lowers("aten.masked_select")
def masked_select(b: Builder, c: Call) -> str | None:
    """Elements where the mask holds, both of one shape."""
    x, mask = c["self"], c["mask"]
    shape = b.sizes(x)
    if shape != b.sizes(mask) or 0 in shape:
        return None
    return compacted(b, c, x, mask, (math.prod(shape),))


@lowers("aten.nonzero")
def nonzero(b: Builder, c: Call) -> str | None:
    """Positions of what is not zero, one row each."""
    x, shape = c["self"], b.sizes(c["self"])
    if not shape or 0 in shape:
        return None
    n = math.prod(shape)
    place = unravel(index(-2), shape)
    chosen: Expr = place[-1]
    for d in range(len(shape) - 2, -1, -1):
        chosen = call("where", call("eq", index(-1), const(d, "int64")), place[d], chosen)
    rows = b.pointwise(b.fresh(f"{c.name}_places"), chosen, (n, len(shape)))
    mask = x
    if b.dtype(x) != "bool":
        mask = b.pointwise(b.fresh(f"{c.name}_mask"), call("ne", b.arg(x), const(0, b.dtype(x))), shape)
    return compacted(b, c, rows, mask, (n, len(shape)))


@lowers("aten.repeat_interleave.self_Tensor")
def repeat_rows(b: Builder, c: Call) -> str | None:
    """Each row as often as its length says, along the first dimension (or flattened)."""
    x, lengths, shape = c["self"], c["repeats"], b.sizes(c["self"])
    if c.get("dim") is None and len(shape) != 1:
        shape = (math.prod(shape),)
        x = b.reshape(b.fresh(f"{c.name}_flat"), x, shape)
    if not shape or c.get("dim", 0) % len(shape) or b.sizes(lengths) != shape[:1] or 0 in shape:
        return None
    return _repeat(b, c, x, lengths)


@lowers("aten.repeat_interleave.Tensor")
def repeat_numbers(b: Builder, c: Call) -> str | None:
    """The number of each entry as often as its length says."""
    lengths = c["repeats"]
    if len(b.sizes(lengths)) != 1 or 0 in b.sizes(lengths) or c.dtype != "int64":
        return None
    return _repeat(b, c, b.pointwise(b.fresh(f"{c.name}_numbers"), index(-1), b.sizes(lengths)), lengths)


def _repeat(b: Builder, c: Call, x: str, lengths: str) -> str | None:
    if b.dtype(lengths) not in ("int64", "int32") or 0 in c.shape:
        return None
    inputs = [b.materialised(x), b.materialised(lengths)]
    return b.add("repeat", inputs, [Value(c.name, c.shape, c.dtype)], {}, c.target)


@lowers("aten.repeat_interleave.self_int")
def repeat_each(b: Builder, c: Call) -> str | None:
    """Every element the same number of times: element i of the output is element i / times."""
    x, shape, times = c["self"], b.sizes(c["self"]), c["repeats"]
    if c.get("dim") is None:
        shape = (math.prod(shape),)
        x = b.reshape(b.fresh(f"{c.name}_flat"), x, shape)
    dim = c.get("dim", 0) % max(len(shape), 1)
    if not shape or times < 1:
        return None
    place: list[Expr] = [index(d - len(shape)) for d in range(len(shape))]
    place[dim] = call("floordiv", place[dim], const(times, "int64"))
    return emit(b, c, b.load(x, *place))


@lowers("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(b: Builder, c: Call) -> tuple[str, ...] | None:
    """A gather of table rows, then one reduction per bag; only the bags themselves can be returned."""
    table, entries, offsets, weights = c["weight"], c["indices"], c["offsets"], c.get("per_sample_weights")
    op = ("sum", "mean", "max")[c.get("mode", 0)]
    if c.get("padding_idx", -1) != -1 or b.dtype(table) not in ("float32", "float64") or len(b.sizes(entries)) != 1:
        return None
    if (
        not all(is_unused(b, name) for name in c.outputs[1:])
        or 0 in (*b.sizes(entries), *c.shape)
        or (weights and op != "sum")
    ):
        return None
    closed = bool(c.get("include_last_offset", False))
    if b.sizes(offsets) != (c.shape[0] + 1 if closed else c.shape[0],):  # type: ignore[operator]
        return None
    row = cast(load(b.actual(entries), b.dtype(entries), index(-2)), "int64")
    value = b.load(table, row, index(-1))
    if weights:
        value = call("mul", value, b.load(weights, index(-2)))
    rows = b.pointwise(b.fresh(f"{c.name}_rows"), value, (*b.sizes(entries), b.sizes(table)[1]))
    inputs = [rows, b.materialised(offsets)]
    bags = b.add("segment", inputs, [Value(c.outputs[0], c.shape, c.dtype)], {"op": op}, c.target)
    return (bags, *c.outputs[1:])
