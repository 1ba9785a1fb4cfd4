"""Convolutions of one and two dimensions."""

from __future__ import annotations

from typing import Any

from kernelevolve.operators.template.graph import Value
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers


@lowers("aten.conv1d", "aten.conv2d", "aten.convolution")
def convolution(b: Builder, c: Call) -> str | None:
    """Batched, not transposed, float32 or float64; "same" padding only where it is even."""
    x, weight = c["input"], c["weight"]
    shape, taps = b.sizes(x), b.sizes(weight)
    spatial = len(taps) - 2
    if (
        c.get("transposed")
        or spatial not in (1, 2)
        or len(shape) != len(taps)
        or b.dtype(x) not in ("float32", "float64")
    ):
        return None
    if 0 in (*shape, *taps, *c.shape) or b.dtype(weight) != b.dtype(x):
        return None
    stride, dilation = (_each(c.get(n, 1), spatial) for n in ("stride", "dilation"))
    padding = _padding(c.get("padding", 0), taps[2:], dilation)
    if padding is None:
        return None
    attrs = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": c.get("groups", 1),
        "transposed": False,
    }
    inputs = [x, weight] + ([c["bias"]] if c.get("bias") is not None else [])
    return b.add("conv", [b.materialised(n) for n in inputs], [Value(c.name, c.shape, c.dtype)], attrs, c.target)


def _each(given: Any, spatial: int) -> tuple[int, ...]:
    sizes = [given] if isinstance(given, int) else list(given)
    return tuple(sizes * spatial if len(sizes) == 1 else sizes)


def _padding(given: Any, taps: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[int, ...] | None:
    if given == "valid":
        return (0,) * len(taps)
    if given == "same":
        total = [(k - 1) * d for k, d in zip(taps, dilation, strict=True)]
        return tuple(n // 2 for n in total) if all(n % 2 == 0 for n in total) else None
    return _each(given, len(taps))
