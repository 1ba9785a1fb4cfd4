"""Variances: two passes, Welford's recurrence, Chan's merging, and one pass where that is honest."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelevolve.testing.honest.orders import FEW, ORDERS, Order, butterfly, columns, lanes
from kernelevolve.testing.honest.registry import Family

Tensor = torch.Tensor
Moments = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Mean and biased variance over the last axis."""


def two_pass(order: Order) -> Moments:
    """The mean first, then the squares of the differences."""

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        mean = order(x) / x.shape[-1]
        d = x - mean.unsqueeze(-1)
        return mean, order(d * d) / x.shape[-1]

    return moments


def corrected_two_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two passes with the rounding error of the mean taken off again (Chan, Golub and LeVeque 1983)."""
    order = lanes(8)
    mean = order(x) / x.shape[-1]
    d = x - mean.unsqueeze(-1)
    rest = order(d)
    return mean, (order(d * d) - rest * rest / x.shape[-1]) / x.shape[-1]


def _welford(x: Tensor) -> tuple[Tensor, Tensor, float]:
    mean, m2 = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for count, term in enumerate(columns(x), 1):
        d = term - mean
        mean = mean + d / count
        m2 = m2 + d * (term - mean)
    return mean, m2, float(x.shape[-1])


def _merge(a: tuple[Tensor, Tensor, float], b: tuple[Tensor, Tensor, float]) -> tuple[Tensor, Tensor, float]:
    n = a[2] + b[2]
    d = b[0] - a[0]
    return a[0] + d * (b[2] / n), a[1] + b[1] + d * d * (a[2] * b[2] / n), n


def _fold(parts: list[tuple[Tensor, Tensor, float]]) -> tuple[Tensor, Tensor]:
    while len(parts) > 1:
        parts = [_merge(*parts[i: i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    mean, m2, n = parts[0]
    return mean, m2 / n


def welford(x: Tensor) -> tuple[Tensor, Tensor]:
    """One pass, mean and squares updated with each term (Welford 1962)."""
    return _fold([_welford(x)])


def welford_lanes(width: int) -> Moments:
    """Welford per lane over strided elements, lanes merged in a tree (Chan et al.)."""
    return lambda x: _fold([_welford(x[..., i::width]) for i in range(width)])


def chan(size: int) -> Moments:
    """Two passes per tile, tiles merged in a tree."""

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        parts = []
        for tile in x.split(size, -1):
            mean, variance = two_pass(butterfly)(tile)
            parts.append((mean, variance * tile.shape[-1], float(tile.shape[-1])))
        return _fold(parts)

    return moments


def shifted(order: Order) -> Moments:
    """One pass around a guess of the mean, that of the first elements."""

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        n = x.shape[-1]
        guess = x[..., :32].mean(-1, keepdim=True)
        d = x - guess
        mean = order(d) / n
        return guess.squeeze(-1) + mean, (order(d * d) / n - mean * mean).clamp_min(0)

    return moments


def one_pass(order: Order) -> Moments:
    """E[x^2] - E[x]^2: honest only where the mean is not large against the spread."""

    def moments(x: Tensor) -> tuple[Tensor, Tensor]:
        n = x.shape[-1]
        mean = order(x) / n
        return mean, (order(x * x) / n - mean * mean).clamp_min(0)

    return moments


MOMENTS: dict[str, tuple[Moments, str]] = {
    **{f"two-pass, {name}": (two_pass(ORDERS[name][0]), f"two passes; {ORDERS[name][1]}") for name in FEW},
    "two-pass, corrected": (corrected_two_pass, "two passes with the mean's rounding taken off"),
    "welford": (welford, "Welford's recurrence"),
    "welford, lanes8": (welford_lanes(8), "Welford in 8 lanes, merged by Chan's rule"),
    "welford, lanes32": (welford_lanes(32), "Welford in a warp, merged by Chan's rule"),
    "chan, tiles16": (chan(16), "two passes in tiles of 16, merged by Chan's rule"),
    "chan, tiles64": (chan(64), "two passes in tiles of 64, merged by Chan's rule"),
    "shifted": (shifted(lanes(16)), "one pass around a guessed mean"),
}
FEW_MOMENTS = ("two-pass, sequential", "two-pass, lanes32", "welford", "welford, lanes32", "chan, tiles64", "shifted")

FAMILY = Family("moments")
_SIZES = {"m": 48, "n": 512}
_TASKS = (
    FAMILY.problem("variance", "x.var(-1)", {"x": "torch.randn(m, n) + 0.5"}, _SIZES,
                   shapes=({"m": 8, "n": 2000},), dtypes=("float32", "float64", "float16", "bfloat16")),
    FAMILY.problem("variance far from zero", "x.var(-1)", {"x": "torch.randn(m, n) + 10"}, _SIZES),
)
_STANDARDIZED = FAMILY.problem("standard score", "(x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)",
                               {"x": "torch.rand(m, n)"}, _SIZES)
_BOTH = FAMILY.problem("std and mean", "torch.std_mean(x, 0)", {"x": "torch.rand(n, m)"}, _SIZES)


def _unbiased(x: Tensor, moments: Moments) -> tuple[Tensor, Tensor]:
    mean, variance = moments(x)
    return mean, variance * (x.shape[-1] / (x.shape[-1] - 1))


def _score(x: Tensor, moments: Moments) -> Tensor:
    mean, variance = _unbiased(x, moments)
    return (x - mean.unsqueeze(-1)) / variance.sqrt().unsqueeze(-1)


def _std_mean(x: Tensor, moments: Moments) -> tuple[Tensor, Tensor]:
    mean, variance = _unbiased(x.T, moments)
    return variance.sqrt(), mean


for _name, (_moments, _why) in MOMENTS.items():
    for _task in _TASKS:
        _task.add(_name, lambda x, moments=_moments: _unbiased(x, moments)[1], _why)
    _STANDARDIZED.add(_name, lambda x, moments=_moments: _score(x, moments), _why)
    _BOTH.add(_name, lambda x, moments=_moments: _std_mean(x, moments), _why)
_BOTH.add("one-pass", lambda x: _std_mean(x, one_pass(lanes(32))),
          "E[x^2] - E[x]^2 where the mean is of the spread's size")
