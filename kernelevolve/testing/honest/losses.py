"""Losses: per row, and reduced to one number."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelevolve.testing.honest.orders import ORDERS, Order, lanes
from kernelevolve.testing.honest.registry import Family
from kernelevolve.testing.honest.softmax import blocked_online, online, three_pass

Tensor = torch.Tensor
FAMILY = Family("losses")
_SIZES = {"m": 64, "n": 100}
_LOGITS = {"x": "torch.randn(m, n)", "y": "torch.randint(0, n, (m,))"}
_PAIR = {"x": "torch.randn(m, n)", "y": "torch.randn(m, n)"}
_CROSS = FAMILY.problem("cross entropy", "F.cross_entropy(x, y)", _LOGITS, _SIZES)
_CROSS_EACH = FAMILY.problem("cross entropy, each", "F.cross_entropy(x, y, reduction='none')", _LOGITS, _SIZES)
_SMOOTH = FAMILY.problem("smooth L1", "F.smooth_l1_loss(x, y)", _PAIR, _SIZES)
_MSE = FAMILY.problem("squared error", "F.mse_loss(x, y)", _PAIR, _SIZES)
_L1 = FAMILY.problem("absolute error", "F.l1_loss(x, y)", _PAIR, _SIZES)
_KL = FAMILY.problem("KL divergence", "F.kl_div(torch.log_softmax(x, -1), torch.softmax(y, -1), reduction='batchmean')",
                     _PAIR, _SIZES)
_COSINE = FAMILY.problem("cosine", "F.cosine_similarity(x, y, dim=-1)",
                         {"x": "torch.rand(m, n)", "y": "torch.rand(m, n)"}, _SIZES)
_HINGE = FAMILY.problem("hinge", "(1 - x * y).clamp_min(0).mean()", _PAIR, _SIZES)
_BCE = FAMILY.problem("binary cross entropy", "F.binary_cross_entropy_with_logits(x, (y > 0).to(x.dtype))", _PAIR,
                      _SIZES)
_TRIPLET = FAMILY.problem("distances", "torch.cdist(x, y, compute_mode='donot_use_mm_for_euclid_dist')", _PAIR,
                          {"m": 32, "n": 64})


def _mean(terms: Tensor, order: Order) -> Tensor:
    return order(terms.flatten()) / terms.numel()


def _picked(x: Tensor, y: Tensor) -> Tensor:
    return x.gather(-1, y.unsqueeze(-1)).squeeze(-1)


def _each(x: Tensor, y: Tensor, state: str) -> Tensor:
    if state == "online":
        top, total = online(x)
    elif state == "tiles":
        top, total = blocked_online(x, 32)
    else:
        top, _, total = three_pass(x, ORDERS[state][0])
    return total.log().squeeze(-1) - (_picked(x, y) - top.squeeze(-1))


def _smooth(x: Tensor, y: Tensor) -> Tensor:
    d = (x - y).abs()
    return torch.where(d < 1, 0.5 * d * d, d - 0.5)


def _smooth_without_branch(x: Tensor, y: Tensor) -> Tensor:
    d = (x - y).abs()
    low = d.clamp_max(1)
    return low * (d - 0.5 * low)


def _kl(x: Tensor, y: Tensor, order: Order) -> Tensor:
    top_x, _, total_x = three_pass(x, order)
    top_y, e, total_y = three_pass(y, order)
    log_x, log_y = (x - top_x) - total_x.log(), (y - top_y) - total_y.log()
    return order(order(e / total_y * (log_y - log_x))) / x.shape[0]


def _cosine(x: Tensor, y: Tensor, order: Order) -> Tensor:
    return order(x * y) / (order(x * x).sqrt() * order(y * y).sqrt())


def _cosine_normalized(x: Tensor, y: Tensor, order: Order) -> Tensor:
    return order(x * torch.rsqrt(order(x * x)).unsqueeze(-1) * (y * torch.rsqrt(order(y * y)).unsqueeze(-1)))


def _bce(x: Tensor, y: Tensor) -> Tensor:
    return x.clamp_min(0) - x * (y > 0) + torch.log1p(torch.exp(-x.abs()))


for _state in ("sequential", "lanes32", "pairwise", "online", "tiles"):
    _CROSS_EACH.add(_state, lambda x, y, state=_state: _each(x, y, state), f"logsumexp {_state}")
    _CROSS.add(_state, lambda x, y, state=_state: _mean(_each(x, y, state), lanes(8)), f"logsumexp {_state}")
for _name in ("sequential", "lanes16", "lanes256", "split16", "pairwise", "kahan"):
    _order, _why = ORDERS[_name]
    _SMOOTH.add(_name, lambda x, y, order=_order: _mean(_smooth(x, y), order), _why)
    _SMOOTH.add(f"{_name}, no branch", lambda x, y, order=_order: _mean(_smooth_without_branch(x, y), order), _why)
    _MSE.add(_name, lambda x, y, order=_order: _mean((x - y) * (x - y), order), _why)
    _L1.add(_name, lambda x, y, order=_order: _mean((x - y).abs(), order), _why)
    _KL.add(_name, lambda x, y, order=_order: _kl(x, y, order), _why)
    _COSINE.add(_name, lambda x, y, order=_order: _cosine(x, y, order), _why)
    _COSINE.add(f"{_name}, normalized", lambda x, y, order=_order: _cosine_normalized(x, y, order), _why)
    _HINGE.add(_name, lambda x, y, order=_order: _mean(F.relu(1 - x * y), order), _why)
    _BCE.add(_name, lambda x, y, order=_order: _mean(_bce(x, y), order), _why)
    _TRIPLET.add(_name, lambda x, y, order=_order: order((x.unsqueeze(1) - y.unsqueeze(0)) ** 2).sqrt(), _why)
