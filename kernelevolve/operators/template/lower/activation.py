"""Activation functions, as torch defines them."""

from __future__ import annotations

import math

from kernelevolve.operators.template.expr import Expr, call, const
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers
from kernelevolve.operators.template.lower.pointwise import emit, operand


def _input(b: Builder, c: Call) -> Expr:
    return operand(b, c, "self", c.dtype)


def _positive(x: Expr) -> Expr:
    return call("gt", x, const(0, x.dtype))


def _limited(x: Expr, low: float, high: float) -> Expr:
    return call("min", call("max", x, const(low, x.dtype)), const(high, x.dtype))


@lowers("aten.relu")
def relu(b: Builder, c: Call) -> str | None:
    """max(x, 0)."""
    x = _input(b, c)
    return emit(b, c, call("max", x, const(0, x.dtype)))


@lowers("aten.gelu")
def gelu(b: Builder, c: Call) -> str | None:
    """X * Phi(x), exactly or by tanh."""
    x = _input(b, c)
    if c.get("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return emit(b, c, 0.5 * x * (1.0 + call("tanh", inner)))
    return emit(b, c, 0.5 * x * (1.0 + call("erf", x * math.sqrt(0.5))))


@lowers("aten.silu")
def silu(b: Builder, c: Call) -> str | None:
    """X / (1 + e^-x)."""
    x = _input(b, c)
    return emit(b, c, x / (1.0 + call("exp", -x)))


def softplus_of(x: Expr, beta: float = 1.0, threshold: float = 20.0) -> Expr:
    """log(1 + e^(beta x)) / beta, linear beyond the threshold."""
    scaled = x if beta == 1 else x * beta
    soft = call("log1p", call("exp", scaled))
    return call("where", call("gt", scaled, const(threshold, x.dtype)), x, soft if beta == 1 else soft / beta)


@lowers("aten.softplus")
def softplus(b: Builder, c: Call) -> str | None:
    """See softplus_of."""
    return emit(b, c, softplus_of(_input(b, c), c.get("beta", 1), c.get("threshold", 20)))


@lowers("aten.mish")
def mish(b: Builder, c: Call) -> str | None:
    """X * tanh(softplus(x))."""
    x = _input(b, c)
    return emit(b, c, x * call("tanh", softplus_of(x)))


@lowers("aten.hardswish")
def hardswish(b: Builder, c: Call) -> str | None:
    """X * min(max(x + 3, 0), 6) / 6."""
    x = _input(b, c)
    return emit(b, c, x * _limited(x + 3.0, 0.0, 6.0) / 6.0)


@lowers("aten.hardsigmoid")
def hardsigmoid(b: Builder, c: Call) -> str | None:
    """min(max(x + 3, 0), 6) / 6."""
    return emit(b, c, _limited(_input(b, c) + 3.0, 0.0, 6.0) / 6.0)


@lowers("aten.leaky_relu")
def leaky_relu(b: Builder, c: Call) -> str | None:
    """x, or slope * x below zero."""
    x = _input(b, c)
    return emit(b, c, call("where", _positive(x), x, x * c.get("negative_slope", 0.01)))


@lowers("aten.prelu")
def prelu(b: Builder, c: Call) -> str | None:
    """Leaky with a weight per channel (dimension 1), or one weight."""
    x, weight = _input(b, c), c["weight"]
    slope = b.arg(weight)
    if b.shape(weight) not in ((), (1,)):
        rank = len(c.shape)
        shape = tuple(b.sizes(weight)[0] if d == 1 else 1 for d in range(rank))
        slope = b.arg(b.reshape(b.fresh(f"{c.name}_slope"), weight, shape))
    return emit(b, c, call("where", _positive(x), x, slope * x))


@lowers("aten.elu", "aten.celu", "aten.selu")
def elu(b: Builder, c: Call) -> str | None:
    """Scale * x, or scale * alpha * (e^(input_scale x) - 1) below zero."""
    x = _input(b, c)
    alpha, scale, inner = c.get("alpha", 1.0), c.get("scale", 1.0), c.get("input_scale", 1.0)
    if "selu" in c.target:
        alpha, scale, inner = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0
    if "celu" in c.target:
        inner = 1.0 / alpha
    below = call("expm1", x if inner == 1 else x * inner) * (alpha * scale)
    return emit(b, c, call("where", _positive(x), x if scale == 1 else x * scale, below))


@lowers("aten.softsign")
def softsign(b: Builder, c: Call) -> str | None:
    """X / (1 + |x|)."""
    x = _input(b, c)
    return emit(b, c, x / (1.0 + call("abs", x)))


def log_sigmoid_of(x: Expr) -> Expr:
    """min(x, 0) - log(1 + e^-|x|)."""
    return call("min", x, const(0, x.dtype)) - call("log1p", call("exp", -call("abs", x)))


@lowers("aten.log_sigmoid")
def log_sigmoid(b: Builder, c: Call) -> str | None:
    """See log_sigmoid_of."""
    return emit(b, c, log_sigmoid_of(_input(b, c)))


@lowers("aten.threshold")
def threshold(b: Builder, c: Call) -> str | None:
    """X above the threshold, else a value."""
    x = _input(b, c)
    below = call("le", x, const(c["threshold"], x.dtype))
    return emit(b, c, call("where", below, const(c["value"], x.dtype), x))


@lowers("aten.hardshrink", "aten.softshrink")
def shrink(b: Builder, c: Call) -> str | None:
    """Zero inside [-lambd, lambd]; soft: shifted towards zero outside."""
    x, limit, zero = _input(b, c), c.get("lambd", 0.5), const(0, c.dtype)
    above, below = call("gt", x, const(limit, x.dtype)), call("lt", x, const(-limit, x.dtype))
    if "hard" in c.target:
        inside = call("and", call("ge", x, const(-limit, x.dtype)), call("le", x, const(limit, x.dtype)))
        return emit(b, c, call("where", inside, zero, x))
    return emit(b, c, call("where", above, x - limit, call("where", below, x + limit, x * 0.0)))


@lowers("aten.glu")
def glu(b: Builder, c: Call) -> str | None:
    """First half times sigmoid of the second half."""
    from kernelevolve.operators.template.lower.shape import slice_of

    x, shape = c["self"], b.sizes(c["self"])
    dim = c.get("dim", -1) % len(shape)
    half = shape[dim] // 2
    first = slice_of(b, b.fresh(f"{c.name}_first"), x, dim, 0, half)
    second = slice_of(b, b.fresh(f"{c.name}_second"), x, dim, half, half)
    return emit(b, c, b.arg(first) * call("sigmoid", b.arg(second)))
