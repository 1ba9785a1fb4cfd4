"""Normalisation layers, from the moments of `moments.py` and sums of squares."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelevolve.testing.honest.exponentials import rsqrt_by_newton
from kernelevolve.testing.honest.moments import FEW_MOMENTS, MOMENTS, Moments
from kernelevolve.testing.honest.orders import FEW, ORDERS, Order, lanes
from kernelevolve.testing.honest.registry import Family

Tensor = torch.Tensor
Root = Callable[[Tensor], Tensor]
FAMILY = Family("norms")
ALL = ("float32", "float64", "float16", "bfloat16")
EPS = 1e-5

_LAYER = FAMILY.problem("layer norm", "F.layer_norm(x, (n,), w, b)",
                        {"x": "torch.randn(m, n)", "w": "torch.rand(n)", "b": "torch.randn(n)"}, {"m": 48, "n": 512},
                        shapes=({"m": 8, "n": 3000},), dtypes=ALL)
_RMS = FAMILY.problem("RMS norm", "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w",
                      {"x": "torch.rand(m, n)", "w": "torch.rand(n)"}, {"m": 48, "n": 512}, dtypes=ALL)
_GROUP = FAMILY.problem("group norm", "F.group_norm(x, 4, w, b)",
                        {"x": "torch.randn(4, 16, n, n)", "w": "torch.rand(16)", "b": "torch.randn(16)"}, {"n": 12})
_INSTANCE = FAMILY.problem("instance norm", "F.instance_norm(x)", {"x": "torch.rand(4, 8, n, n)"}, {"n": 20})
_BATCH = FAMILY.problem("batch norm", "F.batch_norm(x, None, None, w, b, training=True)",
                        {"x": "torch.randn(8, 16, n, n)", "w": "torch.rand(16)", "b": "torch.randn(16)"}, {"n": 8})


def normalized(x: Tensor, moments: Moments, root: Root = torch.rsqrt) -> Tensor:
    """(x - mean) / sqrt(variance + eps) over the last axis."""
    mean, variance = moments(x)
    return (x - mean.unsqueeze(-1)) * root(variance + EPS).unsqueeze(-1)


def _folded(x: Tensor, w: Tensor, b: Tensor, moments: Moments) -> Tensor:
    mean, variance = moments(x)
    scale = torch.rsqrt(variance + EPS).unsqueeze(-1)
    return x * (scale * w) + (b - mean.unsqueeze(-1) * scale * w)


def _by_channel(y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return y * w.view(1, -1, 1, 1) + b.view(1, -1, 1, 1)


def _group_norm(x: Tensor, w: Tensor, b: Tensor, moments: Moments) -> Tensor:
    return _by_channel(normalized(x.reshape(x.shape[0], 4, -1), moments).reshape(x.shape), w, b)


def _batch_norm(x: Tensor, w: Tensor, b: Tensor, moments: Moments) -> Tensor:
    y = normalized(x.transpose(0, 1).flatten(1), moments)
    return _by_channel(y.unflatten(1, (x.shape[0], *x.shape[2:])).transpose(0, 1), w, b)


def _rms_norm(x: Tensor, w: Tensor, order: Order, root: Root = torch.rsqrt) -> Tensor:
    return x * root(order(x * x) / x.shape[-1] + EPS).unsqueeze(-1) * w


for _name in FEW_MOMENTS:
    _moments, _why = MOMENTS[_name]
    _LAYER.add(_name, lambda x, w, b, moments=_moments: normalized(x, moments) * w + b, _why)
    _GROUP.add(_name, lambda x, w, b, moments=_moments: _group_norm(x, w, b, moments), _why)
    _INSTANCE.add(_name, lambda x, moments=_moments: normalized(x.flatten(2), moments).reshape(x.shape), _why)
    _BATCH.add(_name, lambda x, w, b, moments=_moments: _batch_norm(x, w, b, moments), _why)
_PAIR = MOMENTS["two-pass, lanes32"][0]
_LAYER.add("divided by the root", lambda x, w, b: normalized(x, _PAIR, lambda v: 1 / v.sqrt()) * w + b, "1 / sqrt")
_LAYER.add("folded", lambda x, w, b: _folded(x, w, b, _PAIR), "scale and shift folded into one multiply-add")
_LAYER.add("rsqrt by Newton", lambda x, w, b: normalized(x, _PAIR, rsqrt_by_newton) * w + b,
           "12-bit rsqrt with one Newton step", dtypes=("float32",))
for _name in FEW:
    _order, _why = ORDERS[_name]
    _RMS.add(_name, lambda x, w, order=_order: _rms_norm(x, w, order), _why)
_RMS.add("divided by the root", lambda x, w: x / (lanes(8)(x * x) / x.shape[-1] + EPS).sqrt().unsqueeze(-1) * w,
         "a division by the root")
_RMS.add("rsqrt by Newton", lambda x, w: _rms_norm(x, w, lanes(32), rsqrt_by_newton),
         "12-bit rsqrt with one Newton step", dtypes=("float32",))
