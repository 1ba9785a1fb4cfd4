"""Elementary functions from additions and multiplications, as fast-math kernels write them; float32 only."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

Tensor = torch.Tensor
LOG2E = math.log2(math.e)
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
"""ln 2 in two parts, the first with so few digits that its product with an integer is exact (Cody and Waite 1980)."""


def exp_by_series(degree: int) -> Callable[[Tensor], Tensor]:
    """Exp from k = round(x / ln 2) and a Taylor series of the remainder, whose error is 0.35^(degree+1) / (degree+1)!.

    Degree 6 leaves 1.3e-7 at the ends of the interval (2 ulp with the roundings), 5 leaves 2.6e-6, 3 leaves 6e-4.
    """

    def exp(x: Tensor) -> Tensor:
        k = torch.round(x.clamp(-87, 88) * LOG2E)
        r = (x.clamp(-87, 88) - k * _LN2_HIGH) - k * _LN2_LOW
        total = torch.full_like(r, 1 / math.factorial(degree))
        for i in range(degree - 1, -1, -1):
            total = total * r + 1 / math.factorial(i)
        return torch.where(x < -87, torch.zeros_like(x), torch.ldexp(total, k))

    return exp


def exp2_of_difference(x: Tensor) -> Tensor:
    """Exp of a difference that was taken before it is scaled: 2^((x - m) log2 e)."""
    return torch.exp2(x * LOG2E)


def tanh_by_exp(x: Tensor) -> Tensor:
    """(1 - e) / (1 + e) with e = exp(-2|x|); by an odd series below 0.3, where that would cancel."""
    e = torch.exp(-2 * x.abs())
    s = x * x
    series = x * (1 + s * (-1 / 3 + s * (2 / 15 + s * (-17 / 315 + s * (62 / 2835 + s * (-1382 / 155925))))))
    return torch.where(x.abs() < 0.3, series, torch.sign(x) * (1 - e) / (1 + e))


def rsqrt_by_newton(x: Tensor) -> Tensor:
    """A 12-bit estimate of 1/sqrt(x), as hardware gives it, and one Newton step."""
    rough = ((1 / x.sqrt()).view(torch.int32) & -4096).view(torch.float32)
    return rough * (1.5 - 0.5 * x * rough * rough)


def reciprocal_by_newton(x: Tensor) -> Tensor:
    """A 12-bit estimate of 1/x and one Newton step."""
    rough = ((1 / x).view(torch.int32) & -4096).view(torch.float32)
    return rough * (2 - x * rough)
