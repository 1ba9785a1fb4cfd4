"""Matrix products, alone and with what usually follows them."""

from __future__ import annotations

import torch

from kernelevolve.testing.honest.products import FLOAT32, SIMPLE, Product
from kernelevolve.testing.honest.registry import Family

Tensor = torch.Tensor
FAMILY = Family("matmul")
ALL = ("float32", "float64", "float16", "bfloat16")

_SQUARE = FAMILY.problem("square", "a @ b", {"a": "torch.randn(m, k)", "b": "torch.randn(k, n)"},
                         {"m": 48, "k": 512, "n": 48}, shapes=({"k": 64, "m": 64, "n": 96},), dtypes=ALL)
_POSITIVE = FAMILY.problem("positive", "torch.matmul(a, b)", {"a": "torch.rand(m, k)", "b": "torch.rand(k, n)"},
                           {"m": 40, "k": 1024, "n": 40})
_DEEP = FAMILY.problem("deep", "a @ b", {"a": "torch.rand(m, k)", "b": "torch.rand(k, n)"},
                       {"m": 24, "k": 4096, "n": 24})
_BATCHED = FAMILY.problem("batched", "torch.bmm(a, b)", {"a": "torch.rand(4, m, k)", "b": "torch.rand(4, k, n)"},
                          {"m": 32, "k": 128, "n": 32})
_LINEAR = FAMILY.problem("linear, bias, ReLU", "torch.relu(F.linear(x, w, b))",
                         {"x": "torch.rand(m, k)", "w": "(torch.rand(n, k) - 0.5) / k ** 0.5",
                          "b": "torch.randn(n) / 10"}, {"m": 64, "k": 256, "n": 64})
_VECTOR = FAMILY.problem("matrix by vector", "a @ x", {"a": "torch.rand(m, k)", "x": "torch.rand(k, 1)"},
                         {"m": 256, "k": 1024})


def _linear(x: Tensor, w: Tensor, b: Tensor, product: Product) -> Tensor:
    return torch.relu(product(x, w.T) + b)


for _name, (_product, _why) in (SIMPLE | FLOAT32).items():
    _dtypes = ("float32",) if _name in FLOAT32 else ALL
    _SQUARE.add(_name, _product, _why, dtypes=_dtypes)
    _POSITIVE.add(_name, _product, _why, dtypes=_dtypes)
    _BATCHED.add(_name, _product, _why, dtypes=_dtypes)
    _LINEAR.add(_name, lambda x, w, b, product=_product: _linear(x, w, b, product), _why, dtypes=_dtypes)
    if not _name.startswith("dots"):
        _DEEP.add(_name, _product, _why, dtypes=_dtypes)
    if _name not in ("transposed",):
        _VECTOR.add(_name, _product, _why, dtypes=_dtypes)
_LINEAR.add("bias first", lambda x, w, b: torch.relu(torch.addmm(b, x, w.T)), "accumulator that starts at the bias")
