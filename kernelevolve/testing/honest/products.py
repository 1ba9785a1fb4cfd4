"""Ways to multiply two matrices: loops, tiles, splits, and products emulated from narrow ones."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelevolve.testing.honest.orders import Order, butterfly, lanes, sequential
from kernelevolve.testing.honest.rounding import bf16, fma, split, tf32

Tensor = torch.Tensor
Product = Callable[[Tensor, Tensor], Tensor]
"""(..., M, K) and (..., K, N) to (..., M, N)."""


def k_loop(a: Tensor, b: Tensor) -> Tensor:
    """A running sum of rank-one updates: what each thread of a plain kernel does."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype, device=a.device)
    for k in range(a.shape[-1]):
        total.add_(a[..., k: k + 1] * b[..., k: k + 1, :])
    return total


def k_loop_fma(a: Tensor, b: Tensor) -> Tensor:
    """The same with fused multiply-adds."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype, device=a.device)
    for k in range(a.shape[-1]):
        total = fma(a[..., k: k + 1], b[..., k: k + 1, :], total)
    return total


def tiled(size: int, inner: Product = torch.matmul) -> Product:
    """Tiles of K, each multiplied by `inner` and added to a running total."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype, device=a.device)
        for k in range(0, a.shape[-1], size):
            total.add_(inner(a[..., k: k + size], b[..., k: k + size, :]))
        return total

    return product


def split_k(count: int, last: Order, inner: Product = torch.matmul) -> Product:
    """`count` partial products over contiguous parts of K, then added by `last`."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        size = -(-a.shape[-1] // count)
        parts = [inner(a[..., k: k + size], b[..., k: k + size, :]) for k in range(0, a.shape[-1], size)]
        return last(torch.stack(parts, -1))

    return product


def inner_products(order: Order) -> Product:
    """Every element its own dot product, added by `order`; a row of the result at a time."""

    def product(a: Tensor, b: Tensor) -> Tensor:
        return torch.stack([order(row.unsqueeze(-2) * b.transpose(-1, -2)) for row in a.unbind(-2)], -2)

    return product


def transposed(a: Tensor, b: Tensor) -> Tensor:
    """(B^T A^T)^T."""
    return (b.transpose(-1, -2).contiguous() @ a.transpose(-1, -2).contiguous()).transpose(-1, -2)


def compensated(a: Tensor, b: Tensor) -> Tensor:
    """A loop over K with Kahan's correction."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype, device=a.device)
    carry = torch.zeros_like(total)
    for k in range(a.shape[-1]):
        y = a[..., k: k + 1] * b[..., k: k + 1, :] - carry
        new = total + y
        carry = (new - total) - y
        total = new
    return total


def emulated(parts: int, rounded: Callable[[Tensor], Tensor], highest: int, inner: Product = torch.matmul) -> Product:
    """Operands split into `parts` narrow terms; the products whose order is at most `highest`, smallest first.

    Products of narrow numbers are exact in float32, so only what is dropped and the additions err.
    tf32x3 is (2, tf32, 1), bf16x3 (2, bf16, 1), bf16x6 (3, bf16, 2), bf16x9 (3, bf16, 4).
    """

    def product(a: Tensor, b: Tensor) -> Tensor:
        left, right = split(a, parts, rounded), split(b, parts, rounded)
        orders = sorted(((i, j) for i in range(parts) for j in range(parts) if i + j <= highest),
                        key=lambda p: p[0] + p[1], reverse=True)
        total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype, device=a.device)
        for i, j in orders:
            total = total + inner(left[i], right[j])
        return total

    return product


def scaled_fp16(a: Tensor, b: Tensor) -> Tensor:
    """float16 in two terms, rows and columns scaled by powers of two and the rest by 2^11 (Ootomo and Yokota 2022)."""

    def scale(x: Tensor, dim: int) -> Tensor:
        return torch.exp2(-torch.floor(torch.log2(x.abs().amax(dim, keepdim=True).clamp_min(1e-30))))

    sa, sb = scale(a, -1), scale(b, -2)
    x, y = a * sa, b * sb
    xh, yh = x.half().float(), y.half().float()
    xl, yl = ((x - xh) * 2048).half().float(), ((y - yh) * 2048).half().float()
    return (xh @ yh + (xh @ yl + xl @ yh) / 2048) / sa / sb


def integer_slices(a: Tensor, b: Tensor) -> Tensor:
    """Error-free slices of seven bits and exact integer products (Ozaki et al. 2012), four slices each."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=torch.float64, device=a.device)
    scale_a, scale_b = (torch.exp2(torch.ceil(torch.log2(x.abs().amax(d, keepdim=True).clamp_min(1e-30))) + 1)
                        for x, d in ((a, -1), (b, -2)))

    def slices(x: Tensor) -> list[Tensor]:
        found = []
        for _ in range(4):
            head = torch.round(x * 128)
            found.append(head)
            x = x * 128 - head
        return found

    left, right = slices((a / scale_a).double()), slices((b / scale_b).double())
    for i in range(4):
        for j in range(4 - i):
            total += (left[i] @ right[j]) * 128.0 ** -(i + j + 2)
    return (total * scale_a.double() * scale_b.double()).to(a.dtype)


SIMPLE: dict[str, tuple[Product, str]] = {
    "k-loop": (k_loop, "running sum of rank-one updates"),
    "tiles16": (tiled(16, k_loop), "K in tiles of 16"),
    "tiles32": (tiled(32, k_loop), "K in tiles of 32"),
    "tiles64": (tiled(64), "K in tiles of 64, the library inside"),
    "tiles128": (tiled(128), "K in tiles of 128, the library inside"),
    "split2": (split_k(2, sequential, k_loop), "split-K by 2"),
    "split4": (split_k(4, sequential, k_loop), "split-K by 4"),
    "split16": (split_k(16, butterfly, k_loop), "split-K by 16, partial sums in a tree"),
    "dots, lanes8": (inner_products(lanes(8)), "dot products in 8 lanes"),
    "dots, lanes32": (inner_products(lanes(32)), "dot products of a warp"),
    "dots, pairwise": (inner_products(butterfly), "dot products in a tree"),
    "transposed": (transposed, "the transposed product"),
    "compensated": (compensated, "Kahan's correction"),
}
FLOAT32: dict[str, tuple[Product, str]] = {
    "k-loop, fma": (k_loop_fma, "running sum of fused multiply-adds"),
    "tf32x3": (emulated(2, tf32, 1), "three tf32 products, three accumulators"),
    "tf32x3, tiles32": (tiled(32, emulated(2, tf32, 1)), "three tf32 products, accumulated every 32"),
    "tf32x4": (emulated(2, tf32, 2), "four tf32 products"),
    "bf16x6": (emulated(3, bf16, 2), "six bfloat16 products"),
    "bf16x6, tiles32": (tiled(32, emulated(3, bf16, 2)), "six bfloat16 products, accumulated every 32"),
    "bf16x6, k-loop": (emulated(3, bf16, 2, k_loop), "six bfloat16 products, running sums"),
    "bf16x9": (emulated(3, bf16, 4), "nine bfloat16 products"),
    "fp16x3, scaled": (scaled_fp16, "three float16 products with scaled rests"),
    "integer slices": (integer_slices, "exact integer products of seven-bit slices"),
}
