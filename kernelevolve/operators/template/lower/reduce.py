"""Reductions. A mean is a sum and a division; kept dimensions are dropped by a view."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelevolve.operators.template.expr import FLOATS, Expr, call, cast, const
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers
from kernelevolve.operators.template.lower.pointwise import emit, operand


def dims_of(b: Builder, c: Call, x: str, key: str = "dim") -> tuple[int, ...]:
    """The reduced dimensions, non-negative and sorted; all when absent or empty."""
    rank = len(b.shape(x))
    given = c.get(key)
    given = [given] if isinstance(given, int) else given
    return tuple(sorted({d % rank for d in given})) if given else tuple(range(rank))


def count_of(b: Builder, x: str, dims: Sequence[int]) -> int:
    """How many elements one reduction takes."""
    return math.prod(b.sizes(x)[d] for d in dims)


def stage(b: Builder, name: str, body: Expr, like: str, origin: str = "") -> str:
    """A pointwise intermediate value with the shape of `like`."""
    return b.pointwise(b.fresh(name), body, b.shape(like), origin)


def converted(b: Builder, x: str, dtype: str, stem: str) -> str:
    """`x` in another dtype."""
    return b.actual(x) if b.dtype(x) == dtype else stage(b, f"{stem}_as_{dtype}", cast(b.arg(x), dtype), x)


def total(b: Builder, stem: str, x: str, dims: Sequence[int], origin: str = "", op: str = "sum") -> str:
    """A reduction that keeps its dimensions."""
    return b.reduce(b.fresh(stem), op, x, dims, origin=origin)


def mean_of(b: Builder, stem: str, x: str, dims: Sequence[int], origin: str = "") -> str:
    """The mean, dimensions kept."""
    s = total(b, f"{stem}_sum", x, dims, origin)
    n = count_of(b, x, dims)
    return stage(b, stem, _divided(b.arg(s), n), s, origin)


def _divided(x: Expr, n: float) -> Expr:
    """X / n; by a power of two as a product, which is exact."""
    return x * (1.0 / n) if n and abs(math.frexp(n)[0]) == 0.5 else x / float(n)


def finish(b: Builder, c: Call, kept: str, body: Expr | None = None) -> str:
    """The call's value from a reduction with kept dimensions: `body` of it, without the dimensions if so asked."""
    body = cast(b.arg(kept) if body is None else body, c.dtype)
    if c.shape == b.shape(kept):
        return b.same(c.name, kept) if body is b.arg(kept) else b.pointwise(c.name, body, c.shape, c.target)
    if body is not b.arg(kept):
        kept = stage(b, f"{c.name}_kept", body, kept, c.target)
    return b.reshape(c.name, kept, c.shape, c.target)


def _input(b: Builder, c: Call) -> str | None:
    """The input in the dtype of the sum; None for a 0-d tensor."""
    return converted(b, c["self"], c.dtype, c.name) if b.shape(c["self"]) else None


@lowers("aten.sum", "aten.mean", "aten.prod")
def sum_(b: Builder, c: Call) -> str | None:
    """Sum, mean, product."""
    x = _input(b, c)
    if x is None:
        return None
    dims = dims_of(b, c, x)
    if "prod" in c.target:
        return finish(b, c, total(b, f"{c.name}_all", x, dims, c.target, "prod"))
    kept = total(b, f"{c.name}_sum", x, dims, c.target)
    return finish(b, c, kept, _divided(b.arg(kept), count_of(b, x, dims)) if "mean" in c.target else None)


@lowers("aten.amax", "aten.amin", "aten.max.default", "aten.min.default")
def extreme(b: Builder, c: Call) -> str | None:
    """Largest or smallest; NaN wins."""
    x = _input(b, c)
    if x is None:
        return None
    op = "max" if "max" in c.target else "min"
    return finish(b, c, total(b, f"{c.name}_all", x, dims_of(b, c, x), c.target, op))


@lowers("aten.argmax", "aten.argmin")
def arg_extreme(b: Builder, c: Call) -> str | None:
    """Position of the first largest or smallest along one dimension."""
    x = c["self"]
    if c.get("dim") is None or not b.shape(x):
        return None
    op = c.target.split(".")[1]
    return finish(b, c, b.reduce(b.fresh(f"{c.name}_at"), op, x, dims_of(b, c, x), "int64", c.target))


@lowers("aten.max.dim", "aten.min.dim")
def extreme_with_position(b: Builder, c: Call) -> tuple[str, ...] | None:
    """Value and position."""
    x = b.actual(c["self"])
    if not b.shape(x):
        return None
    op, dims = ("max" if "max" in c.target else "min"), dims_of(b, c, x)
    best = total(b, f"{c.name}_all", x, dims, c.target, op)
    where = b.reduce(b.fresh(f"{c.name}_at"), f"arg{op}", x, dims, "int64", c.target)
    names = []
    for name, kept in zip(c.outputs, (best, where), strict=True):
        shape = b.spec(name).shape
        names.append(b.same(name, kept) if shape == b.shape(kept) else b.reshape(name, kept, shape, c.target))
    return tuple(names)


@lowers("aten.any", "aten.all")
def any_or_all(b: Builder, c: Call) -> str | None:
    """Whether some or every element is not zero."""
    x = _input(b, c)
    if x is None or c.dtype != "bool":
        return None
    return finish(b, c, total(b, f"{c.name}_each", x, dims_of(b, c, x), c.target, c.target.split(".")[1]))


def variance_of(b: Builder, stem: str, x: str, dims: Sequence[int], correction: float, origin: str) -> tuple[str, str]:
    """Variance and mean, dimensions kept, in two passes."""
    mean = mean_of(b, f"{stem}_mean", x, dims, origin)
    d = b.arg(x) - b.arg(mean)
    squares = total(b, f"{stem}_squares", stage(b, f"{stem}_square", d * d, x, origin), dims, origin)
    n = count_of(b, x, dims) - correction
    divided = _divided(b.arg(squares), n) if n > 0 else b.arg(squares) * math.nan
    return stage(b, f"{stem}_variance", divided, squares, origin), mean


@lowers("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")
def variance(b: Builder, c: Call) -> str | tuple[str, ...] | None:
    """Variance or its root, with or without the mean."""
    x = _input(b, c)
    if x is None or c.dtype not in FLOATS:
        return None
    correction = c.get("correction", 1 if c.get("unbiased", True) else 0)
    var, mean = variance_of(b, c.name, x, dims_of(b, c, x), correction, c.target)
    body = b.arg(var) if "var" in c.target else call("sqrt", b.arg(var))
    if len(c.outputs) == 1:
        return finish(b, c, var, body)
    names = []
    for name, kept in ((c.outputs[0], stage(b, f"{c.name}_first", body, var)), (c.outputs[1], mean)):
        names.append(
            b.same(name, kept) if b.spec(name).shape == b.shape(kept) else b.reshape(name, kept, b.spec(name).shape)
        )
    return tuple(names)


@lowers("aten.logsumexp")
def logsumexp(b: Builder, c: Call) -> str | None:
    """log(sum(e^x)), shifted by the largest."""
    x = _input(b, c)
    if x is None:
        return None
    top, sums = exp_sum_of(b, c.name, x, dims_of(b, c, x), c.target)
    return finish(b, c, sums, call("log", b.arg(sums)) + _shift(b, top))


def _shift(b: Builder, top: str) -> Expr:
    """The largest, but 0 where it is infinite: inf - inf is no number."""
    t = b.arg(top)
    return call("where", call("isinf", t), const(0, t.dtype), t)


def exp_sum_of(b: Builder, stem: str, x: str, dims: Sequence[int], origin: str) -> tuple[str, str]:
    """The largest and the sum of e^(x - largest), dimensions kept."""
    top = total(b, f"{stem}_max", x, dims, origin, "max")
    powers = stage(b, f"{stem}_exp", call("exp", b.arg(x) - _shift(b, top)), x, origin)
    return top, total(b, f"{stem}_sum", powers, dims, origin)


@lowers("aten.norm", "aten.linalg_vector_norm", "aten.frobenius_norm")
def norm(b: Builder, c: Call) -> str | None:
    """p-norms: 1, 2, infinity, 0 and any other."""
    x = _input(b, c)
    if x is None or c.dtype not in FLOATS:
        return None
    p, dims, v = float(c.get("p", c.get("ord", 2))), dims_of(b, c, x), b.arg(x)
    if math.isinf(p):
        size = stage(b, f"{c.name}_size", call("abs", v), x, c.target)
        return finish(b, c, total(b, f"{c.name}_all", size, dims, c.target, "max" if p > 0 else "min"))
    if p == 0:
        body = cast(call("ne", v, const(0, v.dtype)), v.dtype)
    else:
        body = v * v if p == 2 else call("abs", v) if p == 1 else call("pow", call("abs", v), const(p, v.dtype))
    kept = total(b, f"{c.name}_sum", stage(b, f"{c.name}_part", body, x, c.target), dims, c.target)
    s = b.arg(kept)
    root = s if p in (0, 1) else call("sqrt", s) if p == 2 else call("pow", s, const(1 / p, s.dtype))
    return finish(b, c, kept, root)


def reduced_loss(b: Builder, c: Call, body: Expr, like: str) -> str:
    """A loss per element, or its mean or sum (reduction 0, 1, 2)."""
    mode = c.get("reduction", 1)
    if mode == 0:
        return emit(b, c, body)
    each = stage(b, f"{c.name}_each", body, like, c.target)
    dims = tuple(range(len(b.shape(each))))
    kept = total(b, f"{c.name}_sum", each, dims, c.target)
    return finish(b, c, kept, _divided(b.arg(kept), count_of(b, each, dims)) if mode == 1 else None)


@lowers("aten.mse_loss", "aten.l1_loss", "aten.smooth_l1_loss", "aten.huber_loss")
def distance_loss(b: Builder, c: Call) -> str | None:
    """Losses of the difference."""
    if b.shape(c["self"]) != b.shape(c["target"]) or not b.shape(c["self"]):
        return None
    d = operand(b, c, "self", c.dtype) - operand(b, c, "target", c.dtype)
    size = call("abs", d)
    if "mse" in c.target:
        body = d * d
    elif "smooth" in c.target or "huber" in c.target:
        smooth = "smooth" in c.target
        beta = float(c.get("beta" if smooth else "delta", 1.0))
        near = call("lt" if smooth else "le", size, const(beta, c.dtype))
        if smooth:
            body = call("where", near, d * d * (0.5 / beta), size - 0.5 * beta)
        else:
            body = call("where", near, 0.5 * d * d, beta * (size - 0.5 * beta))
    else:
        body = size
    return reduced_loss(b, c, body, c["self"])


@lowers("aten.binary_cross_entropy", "aten.binary_cross_entropy_with_logits")
def binary_cross_entropy(b: Builder, c: Call) -> str | None:
    """From probabilities (logarithms not below -100) or from logits."""
    from kernelevolve.operators.template.lower.activation import log_sigmoid_of

    x, y = operand(b, c, "self", c.dtype), operand(b, c, "target", c.dtype)
    if "logits" in c.target:
        if c.raw.get("pos_weight") is not None:
            weight = 1.0 + (operand(b, c, "pos_weight", c.dtype) - 1.0) * y
            body = (1.0 - y) * x - weight * log_sigmoid_of(x)
        else:
            body = (1.0 - y) * x - log_sigmoid_of(x)
    else:
        floor = const(-100.0, c.dtype)
        body = (y - 1.0) * call("max", call("log1p", -x), floor) - y * call("max", call("log", x), floor)
    if c.raw.get("weight") is not None:
        body = body * operand(b, c, "weight", c.dtype)
    return reduced_loss(b, c, body, c["self"])


@lowers("aten.kl_div")
def kl_div(b: Builder, c: Call) -> str | None:
    """Target * (log(target) - input); 0 where target is 0."""
    x, t = operand(b, c, "self", c.dtype), operand(b, c, "target", c.dtype)
    if c.get("log_target", False):
        return reduced_loss(b, c, call("exp", t) * (t - x), c["self"])
    plain = t * (call("log", t) - x)
    return reduced_loss(b, c, call("where", call("eq", t, const(0.0, c.dtype)), const(0.0, c.dtype), plain), c["self"])
