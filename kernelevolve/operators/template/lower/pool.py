"""Pooling: windows as `pool`, a window over everything as a reduction."""

from __future__ import annotations

from typing import Any

from kernelevolve.operators.template.expr import call, const
from kernelevolve.operators.template.graph import Value
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers
from kernelevolve.operators.template.lower.pointwise import emit
from kernelevolve.operators.template.lower.unused import is_unused

NUMBERS = ("float32", "float64")
LONGEST = 1 << 16
"""Longer lines stay in PyTorch: a kernel keeps a line at hand."""


@lowers("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool2d_with_indices", "aten.max_pool1d_with_indices")
def max_pool(b: Builder, c: Call) -> str | tuple[str, ...] | None:
    """Maxima over windows; their positions only where nobody reads them."""
    found = _pool(b, c, "max", {"dilation": c.get("dilation", 1)})
    if found is None or "with_indices" not in c.target:
        return found
    return (found, c.outputs[1]) if is_unused(b, c.outputs[1]) else None


@lowers("aten.avg_pool1d", "aten.avg_pool2d")
def avg_pool(b: Builder, c: Call) -> str | None:
    """Means over windows."""
    if c.get("divisor_override") is not None:
        return None
    return _pool(b, c, "mean", {"count_include_pad": bool(c.get("count_include_pad", True))})


@lowers("aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten._adaptive_avg_pool2d")
def adaptive_avg_pool(b: Builder, c: Call) -> str | None:
    """Windows of one size where the output's sizes divide the input's; a reduction for one output per plane."""
    x, shape = c["self"], b.sizes(c["self"])
    spatial = 1 if "1d" in c.target else 2
    given, wanted = shape[-spatial:], tuple(int(n) for n in c.shape[-spatial:])
    if (
        b.dtype(x) not in NUMBERS
        or 0 in (*shape, *wanted)
        or shape[-1] > LONGEST
        or any(n % m for n, m in zip(given, wanted, strict=True))
    ):
        return None
    kernel = tuple(n // m for n, m in zip(given, wanted, strict=True))
    if all(n == 1 for n in wanted):
        dims = range(len(shape) - spatial, len(shape))
        total = b.reduce(b.fresh(f"{c.name}_total"), "sum", x, list(dims), origin=c.target)
        count = 1
        for k in kernel:
            count *= k
        return emit(b, c, call("div", b.arg(total), const(count, c.dtype)))
    attrs = {"op": "mean", "kernel": kernel, "stride": kernel, "padding": (0,) * spatial, "dilation": (1,) * spatial}
    return b.add(
        "pool", [b.materialised(x)], [Value(c.name, c.shape, c.dtype)], {**attrs, "count_include_pad": True}, c.target
    )


def _pool(b: Builder, c: Call, op: str, more: dict[str, Any]) -> str | None:
    x, shape = c["self"], b.sizes(c["self"])
    spatial = 1 if "1d" in c.target else 2
    if b.dtype(x) not in NUMBERS or len(shape) < spatial + 1 or 0 in (*shape, *c.shape):
        return None
    kernel = _each(c["kernel_size"], spatial)
    stride = _each(c.get("stride") or kernel, spatial)
    padding = _each(c.get("padding", 0), spatial)
    attrs = {"op": op, "kernel": kernel, "stride": stride, "padding": padding, "dilation": (1,) * spatial, **more}
    attrs["dilation"] = _each(attrs["dilation"], spatial)
    sizes = zip(shape[-spatial:], kernel, stride, padding, attrs["dilation"], strict=True)
    if shape[-1] + 2 * padding[-1] > LONGEST:
        return None
    plain = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)
    if plain != c.shape[-spatial:]:
        return None  # ceil_mode with windows that hang over
    return b.add("pool", [b.materialised(x)], [Value(c.name, c.shape, c.dtype)], attrs, c.target)


def _each(given: Any, spatial: int) -> tuple[int, ...]:
    sizes = [given] if isinstance(given, int) else list(given)
    return tuple(sizes * spatial if len(sizes) == 1 else sizes)
