"""Cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from kernelevolve.testing.honest.registry import Family

Tensor = torch.Tensor
Scan = Callable[[Tensor], Tensor]
FAMILY = Family("scans")
ALL = ("float32", "float64", "float16", "bfloat16")
_SIZES = {"m": 32, "n": 512}
_SUM = FAMILY.problem("cumulative sum", "torch.cumsum(x, -1)", {"x": "torch.rand(m, n)"}, _SIZES, dtypes=ALL,
                      shapes=({"m": 8, "n": 2048},))
_REVERSE = FAMILY.problem("reverse cumulative sum", "x.flip(-1).cumsum(-1).flip(-1)", {"x": "torch.randn(m, n)"},
                          _SIZES)
_PRODUCT = FAMILY.problem("cumulative product", "torch.cumprod(x, -1)", {"x": "torch.rand(m, n) + 0.5"},
                          {"m": 64, "n": 16}, dtypes=("float32", "float64"))


def running(x: Tensor) -> Tensor:
    """One running sum."""
    out = torch.empty_like(x)
    total = torch.zeros_like(x[..., 0])
    for j in range(x.shape[-1]):
        total = total + x[..., j]
        out[..., j] = total
    return out


def hillis_steele(x: Tensor) -> Tensor:
    """log2 n rounds, each adding the element 1, 2, 4, ... places before (Hillis and Steele 1986)."""
    step = 1
    while step < x.shape[-1]:
        x = x + F.pad(x, (step, 0))[..., : x.shape[-1]]
        step *= 2
    return x


def blelloch(x: Tensor) -> Tensor:
    """Up and down a tree (Blelloch 1990)."""
    if x.shape[-1] == 1:
        return x
    pairs = blelloch(x[..., ::2] + x[..., 1::2])
    even = F.pad(pairs, (1, 0))[..., :-1] + x[..., ::2]
    return torch.stack((even, pairs), -1).flatten(-2)


def blocked(size: int, inner: Scan) -> Scan:
    """A scan per tile, a scan of the tiles' sums, and their offsets added."""

    def scan(x: Tensor) -> Tensor:
        tiles = inner(x.unflatten(-1, (-1, size)))
        offsets = F.pad(running(tiles[..., -1]), (1, 0))[..., :-1]
        return (tiles + offsets.unsqueeze(-1)).flatten(-2)

    return scan


def carried(size: int, inner: Scan) -> Scan:
    """Tile after tile, the last total carried into the next tile's first element (decoupled look-back)."""

    def scan(x: Tensor) -> Tensor:
        parts, carry = [], torch.zeros_like(x[..., :1])
        for tile in x.split(size, -1):
            parts.append(inner(torch.cat((tile[..., :1] + carry, tile[..., 1:]), -1)))
            carry = parts[-1][..., -1:]
        return torch.cat(parts, -1)

    return scan


_SCANS: dict[str, tuple[Scan, str]] = {
    "running": (running, "one running sum"),
    "Hillis-Steele": (hillis_steele, "log n rounds"),
    "Blelloch": (blelloch, "up and down a tree"),
    "tiles32": (blocked(32, running), "running sums in tiles of 32"),
    "tiles128, Hillis-Steele": (blocked(128, hillis_steele), "log n rounds in tiles of 128"),
    "carried32": (carried(32, hillis_steele), "tile after tile of 32"),
    "carried64": (carried(64, running), "tile after tile of 64"),
}
for _name, (_scan, _why) in _SCANS.items():
    _SUM.add(_name, _scan, _why)
    _REVERSE.add(_name, lambda x, scan=_scan: scan(x.flip(-1)).flip(-1), _why)


def _products(x: Tensor) -> Tensor:
    return torch.stack([x[..., : j + 1].prod(-1) for j in range(x.shape[-1])], -1)


def _product_rounds(x: Tensor) -> Tensor:
    step = 1
    while step < x.shape[-1]:
        x = x * F.pad(x, (step, 0), value=1.0)[..., : x.shape[-1]]
        step *= 2
    return x


_PRODUCT.add("each its own", _products, "every prefix multiplied anew")
_PRODUCT.add("Hillis-Steele", _product_rounds, "log n rounds")
