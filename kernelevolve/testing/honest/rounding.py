"""Exact emulation of narrow formats, splits into them, and the fused multiply-add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


def nearest(x: Tensor, dropped_bits: int) -> Tensor:
    """float32 with the last bits of the mantissa rounded away, to nearest, ties to even. Finite numbers only."""
    bits = x.view(torch.int32)
    half = (1 << (dropped_bits - 1)) - 1
    odd = (bits >> dropped_bits) & 1
    return ((bits + half + odd) & -(1 << dropped_bits)).view(torch.float32)


def truncated(x: Tensor, dropped_bits: int) -> Tensor:
    """float32 with the last bits of the mantissa cut off."""
    return (x.view(torch.int32) & -(1 << dropped_bits)).view(torch.float32)


def tf32(x: Tensor) -> Tensor:
    """Ten bits of mantissa, the exponent of float32."""
    return nearest(x, 13)


def tf32_cut(x: Tensor) -> Tensor:
    """tf32 as hardware makes it that only ignores the last 13 bits."""
    return truncated(x, 13)


def bf16(x: Tensor) -> Tensor:
    """Seven bits of mantissa, kept in float32."""
    return nearest(x, 16)


def bf16_cut(x: Tensor) -> Tensor:
    """bfloat16 by cutting."""
    return truncated(x, 16)


def fp16(x: Tensor) -> Tensor:
    """Through float16, kept in float32."""
    return x.half().float()


def split(x: Tensor, parts: int, rounded: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """X as a sum of `parts` numbers of a narrow format, largest first; what they do not hold is lost."""
    found = []
    for _ in range(parts):
        head = rounded(x)
        found.append(head)
        x = x - head
    return found


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The fused a * b + c: rounded once in float32 (through the far finer float64), twice in other types."""
    if c.dtype != torch.float32:
        return a * b + c
    return (a.double() * b.double() + c.double()).float()


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel for float16 and bfloat16 that computes in float32 and rounds its results once."""

    def run(*args: Any) -> Any:
        narrow = next(a.dtype for a in args if torch.is_tensor(a) and a.is_floating_point())
        wide = [a.float() if torch.is_tensor(a) and a.dtype == narrow else a for a in args]
        answer = function(*wide)
        outputs = answer if isinstance(answer, tuple) else (answer,)
        outputs = tuple(o.to(narrow) if o.is_floating_point() else o for o in outputs)
        return outputs if isinstance(answer, tuple) else outputs[0]

    return run
