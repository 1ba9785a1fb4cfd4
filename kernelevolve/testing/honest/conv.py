"""Convolutions: direct loops, im2col with several products, Winograd's minimal filtering."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelevolve.testing.honest.orders import Order, lanes, pairwise, sequential
from kernelevolve.testing.honest.products import Product, emulated, k_loop, split_k, tiled
from kernelevolve.testing.honest.registry import Family
from kernelevolve.testing.honest.rounding import bf16, tf32

Tensor = torch.Tensor
FAMILY = Family("conv")

_CONV2D = FAMILY.problem("conv2d", "F.conv2d(x, w, padding=1)",
                         {"x": "torch.randn(2, c, s, s)", "w": "torch.randn(o, c, 3, 3)"}, {"c": 16, "o": 16, "s": 16},
                         shapes=({"c": 64, "o": 8, "s": 8},), dtypes=("float32", "float64"))
_POSITIVE = FAMILY.problem("conv2d, positive", "F.conv2d(x, w, padding=1)",
                           {"x": "torch.rand(2, c, s, s)", "w": "torch.rand(o, c, 3, 3)"}, {"c": 32, "o": 12, "s": 12})
_CONV1D = FAMILY.problem("conv1d", "F.conv1d(x, w)", {"x": "torch.rand(4, c, s)", "w": "torch.randn(o, c, 3)"},
                         {"c": 32, "o": 24, "s": 66})
_DEPTHWISE = FAMILY.problem("depthwise", "F.conv2d(x, w, padding=1, groups=c)",
                            {"x": "torch.randn(2, c, s, s)", "w": "torch.randn(c, 1, 3, 3)"}, {"c": 24, "s": 20})


def _as_images(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """conv1d as conv2d of height one, conv2d padded."""
    return (x.unsqueeze(2), w.unsqueeze(2)) if x.ndim == 3 else (F.pad(x, (1, 1, 1, 1)), w)


def _patches(x: Tensor, w: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """(N, C KH KW, OH OW) and the output's shape."""
    wide, filters = _as_images(x, w)
    high, across = filters.shape[-2:]
    out = (wide.shape[-2] - high + 1, wide.shape[-1] - across + 1)
    columns = wide.unfold(2, high, 1).unfold(3, across, 1).permute(0, 1, 4, 5, 2, 3)
    return columns.reshape(x.shape[0], -1, out[0] * out[1]), out if x.ndim == 4 else out[1:]


def im2col(x: Tensor, w: Tensor, product: Product) -> Tensor:
    """Patches as a matrix, one product."""
    columns, out = _patches(x, w)
    return product(w.flatten(1).expand(x.shape[0], -1, -1), columns).reshape(x.shape[0], w.shape[0], *out)


def direct(x: Tensor, w: Tensor, taps_first: bool) -> Tensor:
    """A running sum over taps and channels, in either order of the two loops."""
    wide, filters = _as_images(x, w)
    channels, high, across = filters.shape[1:]
    rows, columns = wide.shape[-2] - high + 1, wide.shape[-1] - across + 1
    total = torch.zeros(x.shape[0], w.shape[0], rows, columns, dtype=x.dtype, device=x.device)
    taps = [(i, j) for i in range(high) for j in range(across)]
    steps = [(c, t) for t in taps for c in range(channels)] if taps_first else \
        [(c, t) for c in range(channels) for t in taps]
    for c, (i, j) in steps:
        total.add_(wide[:, c: c + 1, i: i + rows, j: j + columns] * filters[:, c, i, j].view(1, -1, 1, 1))
    return total if x.ndim == 4 else total.squeeze(2)


def by_taps(x: Tensor, w: Tensor, product: Product = torch.matmul) -> Tensor:
    """One product over the channels per tap, added up: implicit GEMM."""
    wide, filters = _as_images(x, w)
    high, across = filters.shape[-2:]
    rows, columns = wide.shape[-2] - high + 1, wide.shape[-1] - across + 1
    total = torch.zeros(x.shape[0], w.shape[0], rows * columns, dtype=x.dtype, device=x.device)
    for i in range(high):
        for j in range(across):
            window = wide[:, :, i: i + rows, j: j + columns].flatten(2)
            total = total + product(filters[:, :, i, j].expand(x.shape[0], -1, -1), window)
    total = total.unflatten(-1, (rows, columns))
    return total if x.ndim == 4 else total.squeeze(2)


_F23 = ([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [.5, .5, .5], [.5, -.5, .5], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]])
_F43 = ([[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
         [0, 4, 0, -5, 0, 1]],
        [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
         [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])


def winograd(x: Tensor, w: Tensor, size: int) -> Tensor:
    """F(size x size, 3 x 3) of Lavin and Gray 2016 for conv2d with padding 1; sides divisible by `size`."""
    to, of, back = (torch.tensor(m, dtype=x.dtype, device=x.device) for m in {2: _F23, 4: _F43}[size])
    tiles = F.pad(x, (1, 1, 1, 1)).unfold(2, size + 2, size).unfold(3, size + 2, size)
    v = to @ tiles @ to.T
    u = of @ w @ of.T
    m = torch.einsum("ncpqij,ocij->nopqij", v, u)
    y = back @ m @ back.T
    return y.permute(0, 1, 2, 4, 3, 5).reshape(x.shape[0], w.shape[0], *x.shape[2:])


def winograd_1d(x: Tensor, w: Tensor) -> Tensor:
    """F(2, 3) along the last axis, for conv1d without padding and an even number of outputs."""
    to, of, back = (torch.tensor(m, dtype=x.dtype, device=x.device) for m in _F23)
    v = x.unfold(2, 4, 2) @ to.T
    m = torch.einsum("ncpi,oci->nopi", v, w @ of.T)
    return (m @ back.T).flatten(2)


def _depthwise(x: Tensor, w: Tensor, order: Order) -> Tensor:
    windows = F.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1).flatten(4)
    return order(windows * w.view(1, -1, 1, 1, 9))


_FLOAT32 = ("float32",)
for _task in (_CONV2D, _POSITIVE, _CONV1D):
    _task.add("direct, taps outside", lambda x, w: direct(x, w, True), "running sum, taps outside channels")
    _task.add("direct, channels outside", lambda x, w: direct(x, w, False), "running sum, channels outside taps")
    _task.add("im2col", lambda x, w: im2col(x, w, torch.matmul), "patches and the library's product")
    _task.add("im2col, k-loop", lambda x, w: im2col(x, w, k_loop), "patches and running sums")
    _task.add("im2col, tiles32", lambda x, w: im2col(x, w, tiled(32, k_loop)), "patches, K in tiles of 32")
    _task.add("im2col, split4", lambda x, w: im2col(x, w, split_k(4, sequential)), "patches, split-K by 4")
    _task.add("implicit GEMM", by_taps, "one product per tap")
    _task.add("im2col, tf32x3", lambda x, w: im2col(x, w, emulated(2, tf32, 1)), "three tf32 products", dtypes=_FLOAT32)
    _task.add("im2col, bf16x6", lambda x, w: im2col(x, w, emulated(3, bf16, 2)), "six bfloat16 products",
              dtypes=_FLOAT32)
    _task.add("implicit GEMM, tf32x3", lambda x, w: by_taps(x, w, emulated(2, tf32, 1)), "three tf32 products per tap",
              dtypes=_FLOAT32)
for _task in (_CONV2D, _POSITIVE):
    _task.add("Winograd F(2x2,3x3)", lambda x, w: winograd(x, w, 2), "minimal filtering, factors 1 and 1/2")
_CONV1D.add("Winograd F(2,3)", winograd_1d, "minimal filtering along a line")
for _name, _order in (("sequential", sequential), ("pairwise", pairwise), ("lanes4", lanes(4))):
    _DEPTHWISE.add(_name, lambda x, w, order=_order: _depthwise(x, w, order), "nine products per output")
