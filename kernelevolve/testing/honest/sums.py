"""Sums, means, norms and products: the order of additions is everything."""

from __future__ import annotations

import torch

from kernelevolve.testing.honest.orders import FEW, ORDERS, Order, sequential
from kernelevolve.testing.honest.registry import Family
from kernelevolve.testing.honest.rounding import fma

Tensor = torch.Tensor
FAMILY = Family("sums")
ALL = ("float32", "float64", "float16", "bfloat16")

_ROWS = FAMILY.problem("rows", "x.sum(-1)", {"x": "torch.rand(m, n)"}, {"m": 64, "n": 1024},
                       shapes=({"m": 256, "n": 63}, {"m": 16, "n": 4096}), dtypes=ALL)
_COLUMNS = FAMILY.problem("columns", "x.sum(0)", {"x": "torch.randn(n, m)"}, {"m": 96, "n": 777})
_EVERYTHING = FAMILY.problem("everything", "x.sum()", {"x": "torch.rand(n, m)"}, {"m": 64, "n": 64},
                             shapes=({"m": 32, "n": 32},))
_DOT = FAMILY.problem("dot", "(x * y).sum(-1)", {"x": "torch.randn(m, n)", "y": "torch.randn(m, n)"},
                      {"m": 64, "n": 1000}, dtypes=ALL)
for _name, (_order, _why) in ORDERS.items():
    _ROWS.add(_name, _order, _why)
    _COLUMNS.add(_name, lambda x, order=_order: order(x.movedim(0, -1)), _why)
    _EVERYTHING.add(_name, lambda x, order=_order: order(x.flatten()), _why)
    _DOT.add(_name, lambda x, y, order=_order: order(x * y), _why)


def _fma_dot(x: Tensor, y: Tensor) -> Tensor:
    total = torch.zeros_like(x[..., 0])
    for j in range(x.shape[-1]):
        total = fma(x[..., j], y[..., j], total)
    return total


_DOT.add("fma", _fma_dot, "running sum of fused multiply-adds", dtypes=("float32",))

_MEAN = FAMILY.problem("mean", "x.mean(-1)", {"x": "torch.randn(m, n) + 1"}, {"m": 64, "n": 512}, dtypes=ALL)
_MEAN_ALL = FAMILY.problem("global mean", "x.mean((2, 3))", {"x": "torch.rand(4, 16, n, n)"}, {"n": 24})
_L1 = FAMILY.problem("L1 norm", "x / x.abs().sum(-1, keepdim=True)", {"x": "torch.randn(m, n)"}, {"m": 32, "n": 600})
_L2 = FAMILY.problem("L2 norm", "F.normalize(x, dim=-1)", {"x": "torch.randn(m, n)"}, {"m": 32, "n": 600}, dtypes=ALL)
_FROBENIUS = FAMILY.problem("Frobenius", "x / torch.norm(x)", {"x": "torch.rand(m, n)"}, {"m": 48, "n": 48})
_MSE = FAMILY.problem("sum of squares", "(x * x).sum((1, 2))", {"x": "torch.randn(m, n, n)"}, {"m": 32, "n": 20})


def _normalized(x: Tensor, order: Order) -> Tensor:
    return x / order(x * x).sqrt().clamp_min(1e-12).unsqueeze(-1)


def _normalized_by_reciprocal(x: Tensor, order: Order) -> Tensor:
    return x * (1 / order(x * x).sqrt().clamp_min(1e-12)).unsqueeze(-1)


def _scaled_norm(x: Tensor) -> Tensor:
    top = x.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    y = x / top
    return y / sequential(y * y).sqrt().unsqueeze(-1)


for _name in FEW:
    _order, _why = ORDERS[_name]
    _MEAN.add(_name, lambda x, order=_order: order(x) / x.shape[-1], _why)
    _MEAN.add(f"{_name}, reciprocal", lambda x, order=_order: order(x) * (1 / x.shape[-1]), f"{_why}; times 1/n")
    _MEAN_ALL.add(_name, lambda x, order=_order: order(x.flatten(2)) / (x.shape[2] * x.shape[3]), _why)
    _L1.add(_name, lambda x, order=_order: x / order(x.abs()).unsqueeze(-1), _why)
    _L1.add(f"{_name}, reciprocal", lambda x, order=_order: x * (1 / order(x.abs())).unsqueeze(-1),
            f"{_why}; multiplied by the reciprocal")
    _L2.add(_name, lambda x, order=_order: _normalized(x, order), _why)
    _L2.add(f"{_name}, reciprocal", lambda x, order=_order: _normalized_by_reciprocal(x, order),
            f"{_why}; multiplied by the reciprocal")
    _FROBENIUS.add(_name, lambda x, order=_order: x / order((x * x).flatten()).sqrt(), _why)
    _MSE.add(_name, lambda x, order=_order: order((x * x).flatten(1)), _why)
_MEAN.add("each divided", lambda x: sequential(x / x.shape[-1]), "terms divided before they are added")
_L2.add("scaled", _scaled_norm, "scaled by the largest against overflow")

_PRODUCT = FAMILY.problem("product", "x.prod(-1)", {"x": "torch.rand(m, n) + 0.5"}, {"m": 64, "n": 24},
                          dtypes=("float32", "float64"))


def _running_product(x: Tensor) -> Tensor:
    total = torch.ones_like(x[..., 0])
    for j in range(x.shape[-1]):
        total = total * x[..., j]
    return total


def _tree_product(x: Tensor) -> Tensor:
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        odd = x[..., 2 * half:]
        x = torch.cat((x[..., :half] * x[..., half: 2 * half], odd), -1)
    return x[..., 0]


_PRODUCT.add("running", _running_product, "from left to right")
_PRODUCT.add("reverse", lambda x: _running_product(x.flip(-1)), "from right to left")
_PRODUCT.add("tree", _tree_product, "binary tree of halves")
_PRODUCT.add("lanes", lambda x: _tree_product(_running_product(x.unflatten(-1, (-1, 8)).transpose(-1, -2))),
             "eight lanes, then a tree")
