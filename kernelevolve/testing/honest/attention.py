"""Attention: the scores at once, or flash-style in one pass over the keys."""

from __future__ import annotations

import math

import torch

from kernelevolve.testing.honest.exponentials import LOG2E
from kernelevolve.testing.honest.orders import lanes, sequential
from kernelevolve.testing.honest.products import Product, emulated, k_loop, tiled
from kernelevolve.testing.honest.registry import Family
from kernelevolve.testing.honest.rounding import bf16, tf32

Tensor = torch.Tensor
FAMILY = Family("attention")
ALL = ("float32", "float64", "float16", "bfloat16")
_QKV = {name: f"torch.randn(2, 2, s, d){more}" for name, more in (("q", ""), ("k", ""), ("v", " + 0.5"))}
_PLAIN = FAMILY.problem("plain", "F.scaled_dot_product_attention(q, k, v)", _QKV, {"s": 64, "d": 32}, dtypes=ALL,
                        shapes=({"s": 192, "d": 16},))
_CAUSAL = FAMILY.problem("causal", "F.scaled_dot_product_attention(q, k, v, is_causal=True)", _QKV, {"s": 48, "d": 32})
_EXPLICIT = FAMILY.problem("explicit", "torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(d), -1) @ v", _QKV,
                           {"s": 64, "d": 32})


def _mask(s: Tensor, causal: bool, first: int = 0) -> Tensor:
    if not causal:
        return s
    rows, columns = s.shape[-2:]
    ahead = torch.arange(first, first + columns, device=s.device) > torch.arange(rows, device=s.device).unsqueeze(1)
    return s.masked_fill(ahead, -torch.inf)


def at_once(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, product: Product = torch.matmul,
            divide_last: bool = False) -> Tensor:
    """All scores, a softmax over them, a product."""
    s = _mask(product(q, k.transpose(-1, -2)) * (1 / math.sqrt(q.shape[-1])), causal)
    e = torch.exp(s - s.amax(-1, keepdim=True))
    total = lanes(16)(e).unsqueeze(-1)
    return product(e, v) / total if divide_last else product(e / total, v)


def flash(q: Tensor, k: Tensor, v: Tensor, size: int, *, causal: bool = False, product: Product = torch.matmul,
          base_two: bool = False) -> Tensor:
    """One pass over tiles of keys with a running maximum (Dao et al. 2022); base two folds log2 e into the scale."""
    exp = torch.exp2 if base_two else torch.exp
    scale = (LOG2E if base_two else 1.0) / math.sqrt(q.shape[-1])
    top = torch.full_like(q[..., :1], -torch.inf)
    total, out = torch.zeros_like(top), torch.zeros_like(q)
    for first in range(0, k.shape[-2], size):
        tile = slice(first, first + size)
        s = _mask(product(q, k[..., tile, :].transpose(-1, -2)) * scale, causal, first)
        new = torch.maximum(top, s.amax(-1, keepdim=True))
        p, shrink = exp(s - new), exp(top - new)
        total = total * shrink + sequential(p).unsqueeze(-1)
        out = out * shrink + product(p, v[..., tile, :])
        top = new
    return out / total


def split_keys(q: Tensor, k: Tensor, v: Tensor, count: int) -> Tensor:
    """Keys in parts by different blocks, merged by their logsumexp: flash decoding."""
    outs, sums = [], []
    for keys, values in zip(k.chunk(count, -2), v.chunk(count, -2), strict=True):
        s = q @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
        top = s.amax(-1, keepdim=True)
        e = torch.exp(s - top)
        total = lanes(8)(e).unsqueeze(-1)
        outs.append(e @ values / total)
        sums.append(top + total.log())
    both = torch.stack(sums, -1)
    weights = torch.exp(both - both.amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    return sequential(torch.stack(outs, -1) * weights)


_FLOAT32 = ("float32",)
for _task, _causal in ((_PLAIN, False), (_CAUSAL, True), (_EXPLICIT, False)):
    _task.add("at once", lambda q, k, v, c=_causal: at_once(q, k, v, causal=c), "scores, softmax, product")
    _task.add("at once, k-loop", lambda q, k, v, c=_causal: at_once(q, k, v, causal=c, product=k_loop), "running sums")
    _task.add("divided last", lambda q, k, v, c=_causal: at_once(q, k, v, causal=c, divide_last=True),
              "divided by the sum after the second product")
    for _size in (8, 16, 32):
        _task.add(f"flash, tiles{_size}", lambda q, k, v, c=_causal, n=_size: flash(q, k, v, n, causal=c),
                  f"online over {_size} keys")
    _task.add("flash, k-loop", lambda q, k, v, c=_causal: flash(q, k, v, 16, causal=c, product=tiled(8, k_loop)),
              "online, running sums in tiles of 8")
    _task.add("flash, base two", lambda q, k, v, c=_causal: flash(q, k, v, 16, causal=c, base_two=True),
              "log2 e folded into the scale of the scores, whose own error is of that size")
    _task.add("flash, tf32x3", lambda q, k, v, c=_causal: flash(q, k, v, 16, causal=c, product=emulated(2, tf32, 1)),
              "three tf32 products", dtypes=_FLOAT32)
    _task.add("flash, bf16x6", lambda q, k, v, c=_causal: flash(q, k, v, 16, causal=c, product=emulated(3, bf16, 2)),
              "six bfloat16 products", dtypes=_FLOAT32)
for _task in (_PLAIN, _EXPLICIT):
    for _size in (2, 4):
        _task.add(f"split keys, {_size}", lambda q, k, v, n=_size: split_keys(q, k, v, n),
                  f"keys in {_size} parts, merged")
