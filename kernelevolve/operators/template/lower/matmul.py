"""Matrix products: operands as they are (a transposed one is a view), bias and scale as pointwise operations after."""

from __future__ import annotations

from collections.abc import Sequence

from kernelevolve.operators.template.expr import Expr, call, const
from kernelevolve.operators.template.graph import Value
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers
from kernelevolve.operators.template.lower.pointwise import emit

FLOATS = ("float32", "float64")


def product(b: Builder, name: str, left: str, right: str, origin: str, *, transpose_b: bool = False) -> str | None:
    """Left @ right with batch dimensions broadcast; None for dtypes or sizes that no kernel is written for."""
    if b.dtype(left) not in FLOATS or b.dtype(left) != b.dtype(right):
        return None
    a, w = b.sizes(left), b.sizes(right)
    if len(a) < 2 or len(w) < 2 or 0 in (*a, *w):
        return None
    batch = _broadcast(a[:-2], w[:-2])
    shape = (*batch, a[-2], w[-2] if transpose_b else w[-1])
    attrs = {"transpose_a": False, "transpose_b": transpose_b}
    return b.add(
        "matmul", [b.materialised(left), b.materialised(right)], [Value(name, shape, b.dtype(left))], attrs, origin
    )


def _broadcast(a: Sequence[int], w: Sequence[int]) -> tuple[int, ...]:
    rank = max(len(a), len(w))
    pairs = zip((1,) * (rank - len(a)) + tuple(a), (1,) * (rank - len(w)) + tuple(w), strict=True)
    return tuple(max(n, m) for n, m in pairs)


@lowers("aten.mm", "aten.bmm")
def mm(b: Builder, c: Call) -> str | None:
    """A plain or batched product."""
    return product(b, c.name, c["self"], c["mat2"], c.target)


@lowers("aten.matmul", "aten.mv", "aten.dot", "aten.vdot")
def matmul(b: Builder, c: Call) -> str | None:
    """Products with vectors become products with matrices of one row or column."""
    other = next(n for n in ("other", "vec", "tensor") if n in c.raw)
    left, right = c["self"], c[other]
    a, w = b.sizes(left), b.sizes(right)
    if len(a) > 1 and len(w) > 1:
        return product(b, c.name, left, right, c.target)
    if not a or not w:
        return None
    if len(a) == 1:
        left = b.reshape(b.fresh(f"{c.name}_row"), left, (1, a[0]))
    if len(w) == 1:
        right = b.reshape(b.fresh(f"{c.name}_column"), right, (w[0], 1))
    found = product(b, b.fresh(f"{c.name}_product"), left, right, c.target)
    return found and b.reshape(c.name, found, c.shape, c.target)


@lowers("aten.linear")
def linear(b: Builder, c: Call) -> str | None:
    """X W^T + bias."""
    x, bias = c["input"], c.get("bias")
    shape = b.sizes(x)
    if len(shape) == 1:
        x = b.reshape(b.fresh(f"{c.name}_row"), x, (1, *shape))
    if bias is None and len(shape) > 1:
        return product(b, c.name, x, c["weight"], c.target, transpose_b=True)
    found = product(b, b.fresh(f"{c.name}_product"), x, c["weight"], c.target, transpose_b=True)
    if found is None:
        return None
    if len(shape) == 1:
        found = b.reshape(b.fresh(f"{c.name}_vector"), found, c.shape)
    return emit(b, c, b.arg(found) if bias is None else call("add", b.arg(found), b.arg(bias)))


@lowers("aten.addmm", "aten.baddbmm", "aten.addmv")
def addmm(b: Builder, c: Call) -> str | None:
    """Sum of beta * self and alpha * (a @ b)."""
    left, right = (
        c[next(n for n in names if n in c.raw)] for names in (("mat1", "batch1", "mat"), ("mat2", "batch2", "vec"))
    )
    if c.target.startswith("aten.addmv"):
        right = b.reshape(b.fresh(f"{c.name}_column"), right, (*b.sizes(right), 1))
    found = product(b, b.fresh(f"{c.name}_product"), left, right, c.target)
    if found is None or b.dtype(c["self"]) != c.dtype:
        return None
    if c.target.startswith("aten.addmv"):
        found = b.reshape(b.fresh(f"{c.name}_vector"), found, c.shape)
    term = _scaled(b.arg(found), c.get("alpha", 1))
    if c.get("beta", 1) == 0:
        return emit(b, c, term)
    return emit(b, c, call("add", _scaled(b.arg(c["self"]), c.get("beta", 1)), term))


def _scaled(e: Expr, factor: float) -> Expr:
    return e if factor == 1 else call("mul", e, const(factor, e.dtype))
