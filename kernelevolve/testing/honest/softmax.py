"""softmax, log-softmax and logsumexp: three passes, online, blocked, and other exponentials."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelevolve.testing.honest.exponentials import LOG2E, exp2_of_difference, exp_by_series, reciprocal_by_newton
from kernelevolve.testing.honest.orders import FEW, ORDERS, Order, butterfly, columns, lanes, sequential
from kernelevolve.testing.honest.registry import Family
from kernelevolve.testing.honest.rounding import fma

Tensor = torch.Tensor
Exp = Callable[[Tensor], Tensor]


def three_pass(x: Tensor, order: Order, exp: Exp = torch.exp) -> tuple[Tensor, Tensor, Tensor]:
    """Maximum, exponentials of the differences, and their sum, over the last axis."""
    top = x.amax(-1, keepdim=True)
    e = exp(x - top)
    return top, e, order(e).unsqueeze(-1)


def online(x: Tensor) -> tuple[Tensor, Tensor]:
    """Running maximum and rescaled running sum (Milakov and Gimelshein 2018)."""
    top = torch.full_like(x[..., 0], -torch.inf)
    total = torch.zeros_like(top)
    for term in columns(x):
        new = torch.maximum(top, term)
        total = total * torch.exp(top - new) + torch.exp(term - new)
        top = new
    return top.unsqueeze(-1), total.unsqueeze(-1)


def blocked_online(x: Tensor, size: int, order: Order = butterfly) -> tuple[Tensor, Tensor]:
    """The same in tiles: one rescaling per tile."""
    top = torch.full_like(x[..., 0], -torch.inf)
    total = torch.zeros_like(top)
    for tile in x.split(size, -1):
        new = torch.maximum(top, tile.amax(-1))
        total = total * torch.exp(top - new) + order(torch.exp(tile - new.unsqueeze(-1)))
        top = new
    return top.unsqueeze(-1), total.unsqueeze(-1)


def online_lanes(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Online per lane, lanes merged afterwards."""
    top, total = online(x.unflatten(-1, (-1, width)).transpose(-1, -2))
    top, total = top.squeeze(-1), total.squeeze(-1)
    all_top = top.amax(-1, keepdim=True)
    return all_top, butterfly(total * torch.exp(top - all_top)).unsqueeze(-1)


ONLINE: dict[str, tuple[Callable[[Tensor], tuple[Tensor, Tensor]], str]] = {
    "online": (online, "running maximum and rescaled running sum"),
    "online, tiles16": (lambda x: blocked_online(x, 16), "online over tiles of 16"),
    "online, tiles32": (lambda x: blocked_online(x, 32), "online over tiles of 32"),
    "online, tiles128": (lambda x: blocked_online(x, 128), "online over tiles of 128"),
    "online, tiles64, sequential": (lambda x: blocked_online(x, 64, sequential), "tiles of 64, running sums"),
    "online, lanes8": (lambda x: online_lanes(x, 8), "online in 8 lanes, merged"),
    "online, lanes32": (lambda x: online_lanes(x, 32), "online in a warp, merged"),
}
FAMILY = Family("softmax")
ALL = ("float32", "float64", "float16", "bfloat16")
_SIZES = {"m": 48, "n": 512}
_SHAPES = ({"m": 128, "n": 64}, {"m": 16, "n": 4096})
_INPUT = {"x": "torch.randn(m, n)"}
_SOFTMAX = FAMILY.problem("softmax", "torch.softmax(x, -1)", _INPUT, _SIZES, shapes=_SHAPES, dtypes=ALL)
_UNIFORM = FAMILY.problem("softmax of uniform", "torch.softmax(x, 1)", {"x": "torch.rand(m, n)"}, _SIZES)
_LOG = FAMILY.problem("log-softmax", "torch.log_softmax(x, -1)", _INPUT, _SIZES, dtypes=ALL)
_LSE = FAMILY.problem("logsumexp", "torch.logsumexp(x, -1)", _INPUT, _SIZES, dtypes=ALL)


def _divided(x: Tensor, order: Order, exp: Exp = torch.exp) -> Tensor:
    _, e, total = three_pass(x, order, exp)
    return e / total


def _by_reciprocal(x: Tensor, order: Order) -> Tensor:
    _, e, total = three_pass(x, order)
    return e * (1 / total)


def _from_online(x: Tensor, state: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    top, total = state(x)
    return torch.exp(x - top) / total


def _fused_exp2(x: Tensor) -> Tensor:
    c = torch.tensor(LOG2E, dtype=x.dtype, device=x.device)
    top = x.amax(-1, keepdim=True)
    e = torch.exp2(fma(x, c, -top * c))
    return e / lanes(32)(e).unsqueeze(-1)


def _newton(x: Tensor) -> Tensor:
    _, e, total = three_pass(x, lanes(32))
    return e * reciprocal_by_newton(total)


def _through_log(x: Tensor) -> Tensor:
    top, _, total = three_pass(x, lanes(8))
    return torch.exp((x - top) - torch.log(total))


for _name in FEW:
    _order, _why = ORDERS[_name]
    for _task in (_SOFTMAX, _UNIFORM):
        _task.add(f"three-pass, {_name}", lambda x, order=_order: _divided(x, order), f"three passes; {_why}")
    _SOFTMAX.add(f"reciprocal, {_name}", lambda x, order=_order: _by_reciprocal(x, order),
                 f"multiplied by the reciprocal; {_why}")
    _LOG.add(f"three-pass, {_name}", lambda x, order=_order: (x - (p := three_pass(x, order))[0]) - p[2].log(),
             f"x - max - log(sum); {_why}")
    _LSE.add(f"three-pass, {_name}",
             lambda x, order=_order: ((p := three_pass(x, order))[0] + p[2].log()).squeeze(-1),
             f"max + log(sum); {_why}")
for _name, (_state, _why) in ONLINE.items():
    _SOFTMAX.add(_name, lambda x, state=_state: _from_online(x, state), _why)
    _UNIFORM.add(_name, lambda x, state=_state: _from_online(x, state), _why)
    _LOG.add(_name, lambda x, state=_state: (x - (p := state(x))[0]) - p[1].log(), _why)
    _LSE.add(_name, lambda x, state=_state: ((p := state(x))[0] + p[1].log()).squeeze(-1), _why)
for _task in (_SOFTMAX, _UNIFORM):
    _task.add("exp2 of the difference", lambda x: _divided(x, lanes(32), exp2_of_difference), "2^((x - max) log2 e)")
    _task.add("exp2, fused", _fused_exp2, "2^fma(x, log2 e, -max log2 e): the second error is common to a row")
    _task.add("fast exp, degree 6", lambda x: _divided(x, lanes(16), exp_by_series(6)), "exp by a series of 2 ulp",
              dtypes=("float32",))
    _task.add("reciprocal by Newton", _newton, "12-bit reciprocal with one Newton step", dtypes=("float32",))
    _task.add("through the logarithm", _through_log, "exp of the log-softmax")
