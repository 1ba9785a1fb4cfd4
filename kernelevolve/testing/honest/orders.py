"""Orders of summation over the last axis, each rounding written out; any floating dtype."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
Order = Callable[[Tensor], Tensor]


def columns(x: Tensor) -> tuple[Tensor, ...]:
    """The last axis as a tuple of contiguous tensors."""
    return x.movedim(-1, 0).contiguous().unbind(0)


def sequential(x: Tensor) -> Tensor:
    """One running sum."""
    total = torch.zeros_like(x[..., 0])
    for term in columns(x):
        total.add_(term)
    return total


def reverse(x: Tensor) -> Tensor:
    """One running sum from the end."""
    return sequential(x.flip(-1))


def shuffled(x: Tensor) -> Tensor:
    """One running sum in random order, as atomic additions make it."""
    return sequential(x[..., torch.randperm(x.shape[-1]).to(x.device)])


def pairwise(x: Tensor) -> Tensor:
    """A binary tree of neighbours."""
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2))
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def butterfly(x: Tensor) -> Tensor:
    """A binary tree of halves, as warp shuffles make it."""
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2))
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def lanes(width: int, last: Order = butterfly) -> Order:
    """One running sum per lane over elements `width` apart (a vector unit, a warp), then the lanes together."""

    def order(x: Tensor) -> Tensor:
        x = F.pad(x, (0, -x.shape[-1] % width))
        return last(sequential(x.unflatten(-1, (-1, width)).transpose(-1, -2)))

    return order


def chunks(count: int, last: Order = sequential) -> Order:
    """Split-K: `count` running sums over contiguous chunks, then the chunks together."""

    def order(x: Tensor) -> Tensor:
        x = F.pad(x, (0, -x.shape[-1] % count))
        return last(sequential(x.unflatten(-1, (count, -1))))

    return order


def blocked(size: int, inner: Order = sequential) -> Order:
    """Tiles of `size`, each summed by `inner` and added to a running total."""

    def order(x: Tensor) -> Tensor:
        x = F.pad(x, (0, -x.shape[-1] % size))
        return sequential(inner(x.unflatten(-1, (-1, size))))

    return order


def kahan(x: Tensor) -> Tensor:
    """A running sum with its rounding errors carried along."""
    total = torch.zeros_like(x[..., 0])
    carry = torch.zeros_like(total)
    for term in columns(x):
        y = term - carry
        new = total + y
        carry = (new - total) - y
        total = new
    return total


def neumaier(x: Tensor) -> Tensor:
    """A running sum whose rounding errors are summed apart, exactly for either order of magnitude."""
    total = torch.zeros_like(x[..., 0])
    errors = torch.zeros_like(total)
    for term in columns(x):
        new = total + term
        lost = torch.where(total.abs() >= term.abs(), (total - new) + term, (term - new) + total)
        errors.add_(lost)
        total = new
    return total + errors


def wide(x: Tensor) -> Tensor:
    """A running sum in float64, rounded once."""
    return sequential(x.double()).to(x.dtype)


ORDERS: dict[str, tuple[Order, str]] = {
    "sequential": (sequential, "one running sum, what a plain loop does"),
    "reverse": (reverse, "one running sum from the other end"),
    "shuffled": (shuffled, "a running sum in random order, what atomic additions do"),
    "pairwise": (pairwise, "binary tree of neighbours"),
    "butterfly": (butterfly, "binary tree of halves, warp shuffles"),
    "lanes4": (lanes(4, sequential), "loop unrolled by four accumulators"),
    "lanes8": (lanes(8), "AVX2 lanes, folded at the end"),
    "lanes16": (lanes(16), "AVX-512 lanes, folded at the end"),
    "lanes32": (lanes(32), "a warp: strided running sums, then shuffles"),
    "lanes256": (lanes(256), "a block of 256 threads, then a tree through shared memory"),
    "split2": (chunks(2), "split-K by 2"),
    "split4": (chunks(4), "split-K by 4"),
    "split8": (chunks(8), "split-K by 8"),
    "split16": (chunks(16), "split-K by 16"),
    "split32": (chunks(32), "split-K by 32"),
    "split64": (chunks(64), "split-K by 64"),
    "tiles16": (blocked(16), "tiles of 16 added to a running total"),
    "tiles64": (blocked(64), "tiles of 64 added to a running total"),
    "tiles128": (blocked(128, butterfly), "tiles of 128 by a tree, added to a running total"),
    "tiles256": (blocked(256, lanes(8)), "tiles of 256 by eight lanes, added to a running total"),
    "kahan": (kahan, "compensated"),
    "neumaier": (neumaier, "compensated for either order of magnitude"),
    "wide": (wide, "float64 accumulator"),
}
FEW = ("sequential", "pairwise", "lanes16", "lanes32", "split8", "tiles64", "kahan")
"""What families take whose subject is not the order of summation."""
