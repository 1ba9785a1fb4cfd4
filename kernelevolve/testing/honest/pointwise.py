"""Activations and elementary functions in the forms that kernels use."""

from __future__ import annotations

import math

import torch

from kernelevolve.testing.honest.exponentials import exp2_of_difference, exp_by_series, rsqrt_by_newton, tanh_by_exp
from kernelevolve.testing.honest.registry import Family, Function

FAMILY = Family("pointwise")
ALL = ("float32", "float64", "float16", "bfloat16")
_exp6 = exp_by_series(6)
_ROOT_HALF = math.sqrt(0.5)

_F32 = ("float32",)
_WIDE = ("float32", "float64")
_FORMS: dict[str, tuple[str, dict[str, tuple[Function, str, tuple[str, ...]]]]] = {
    "gelu": ("F.gelu(x)", {
        "erf": (lambda x: 0.5 * x * (1 + torch.erf(x * _ROOT_HALF)), "x/2 (1 + erf)", _F32),
        "erfc": (lambda x: 0.5 * x * torch.erfc(-x * _ROOT_HALF), "x/2 erfc(-x/sqrt 2)", _WIDE),
        "ndtr": (lambda x: x * torch.special.ndtr(x), "x times the normal distribution", _WIDE),
    }),
    "gelu, tanh": ("F.gelu(x, approximate='tanh')", {
        "tanh": (lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
                 "as written", _F32),
        "sigmoid": (lambda x: x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)), "by a sigmoid", ALL),
        "exp": (lambda x: x / (1 + torch.exp(-1.5957691216057308 * x * (1 + 0.044715 * x * x))), "by exp", ALL),
    }),
    "silu": ("F.silu(x)", {
        "exp": (lambda x: x / (1 + torch.exp(-x)), "x / (1 + exp(-x))", ALL),
        "product": (lambda x: x * (1 / (1 + torch.exp(-x))), "times the reciprocal", ALL),
        "exp2": (lambda x: x / (1 + exp2_of_difference(-x)), "exp by exp2", ALL),
        "tanh": (lambda x: 0.5 * x * (1 + torch.tanh(0.5 * x)), "half of 1 + tanh(x/2)", ()),
        "fast exp": (lambda x: x / (1 + _exp6(-x)), "exp by a series of 2 ulp", _F32),
    }),
    "sigmoid": ("torch.sigmoid(x)", {
        "exp": (lambda x: 1 / (1 + torch.exp(-x)), "1 / (1 + exp(-x))", ALL),
        "two branches": (lambda x: torch.where(x >= 0, 1 / (1 + torch.exp(-x.abs())),
                                               torch.exp(-x.abs()) / (1 + torch.exp(-x.abs()))), "by sign", ALL),
        "tanh": (lambda x: 0.5 + 0.5 * torch.tanh(0.5 * x), "(1 + tanh(x/2)) / 2", ALL),
        "exp2": (lambda x: 1 / (1 + exp2_of_difference(-x)), "exp by exp2", ALL),
        "fast exp": (lambda x: 1 / (1 + _exp6(-x)), "exp by a series of 2 ulp", _F32),
    }),
    "tanh": ("torch.tanh(x)", {
        "exp": (tanh_by_exp, "(1 - e) / (1 + e), series near zero", _F32),
        "sigmoid": (lambda x: 2 * torch.sigmoid(2 * x) - 1, "2 sigmoid(2x) - 1", ()),
        "expm1": (lambda x: torch.where(x >= 0, 1, -1) * -(e := torch.expm1(-2 * x.abs())) / (e + 2), "by expm1", ALL),
    }),
    "softplus": ("F.softplus(x)", {
        "log1p": (lambda x: x.clamp_min(0) + torch.log1p(torch.exp(-x.abs())), "max + log1p(exp(-|x|))",
                  ("float32", "float16", "bfloat16")),
        "threshold": (lambda x: torch.where(x > 20, x, torch.log1p(torch.exp(x.clamp_max(20)))), "as in PyTorch", ALL),
    }),
    "mish": ("F.mish(x)", {
        "tanh": (lambda x: x * torch.tanh(x.clamp_min(0) + torch.log1p(torch.exp(-x.abs()))), "x tanh(softplus)", ALL),
        "rational": (lambda x: torch.where(x > 20, x, x * ((e := torch.exp(x.clamp_max(20))) * e + 2 * e)
                                           / (e * e + 2 * e + 2)), "rational in exp(x)", ALL),
    }),
    "elu": ("F.elu(x)", {
        "expm1": (lambda x: torch.where(x > 0, x, torch.expm1(x)), "expm1", ALL),
        "min and max": (lambda x: x.clamp_min(0) + torch.expm1(x.clamp_max(0)), "without a branch", ALL),
    }),
    "hardswish": ("F.hardswish(x)", {
        "sixth": (lambda x: x * (x + 3).clamp(0, 6) * (1 / 6), "times a sixth", ALL),
        "scaled": (lambda x: x * (x * (1 / 6) + 0.5).clamp(0, 1), "multiply-add, then a clamp", ALL),
    }),
    "softsign": ("F.softsign(x)", {
        "divide": (lambda x: x / (1 + x.abs()), "as written", ALL),
        "reciprocal": (lambda x: x * (1 / (1 + x.abs())), "times the reciprocal", ALL),
    }),
    "exp": ("torch.exp(x / 8)", {
        "exp2": (lambda x: exp2_of_difference(x * 0.125), "exp by exp2", ALL),
        "fast exp": (lambda x: _exp6(x * 0.125), "a series of 2 ulp", _F32),
        "squared": (lambda x: torch.exp(x * 0.0625) ** 2, "the square of half the exponent", ALL),
    }),
    "rsqrt": ("torch.rsqrt(x * x + 1)", {
        "divide": (lambda x: 1 / torch.sqrt(x * x + 1), "1 / sqrt", ALL),
        "root of reciprocal": (lambda x: torch.sqrt(1 / (x * x + 1)), "sqrt(1 / x)", ALL),
        "newton": (lambda x: rsqrt_by_newton(x * x + 1), "12-bit estimate with one Newton step", _F32),
    }),
    "swiglu": ("F.silu(x[..., ::2]) * x[..., 1::2]", {
        "exp": (lambda x: x[..., ::2] * x[..., 1::2] / (1 + torch.exp(-x[..., ::2])), "product first", ALL),
        "reciprocal": (lambda x: x[..., ::2] * (1 / (1 + torch.exp(-x[..., ::2]))) * x[..., 1::2], "in turn", ALL),
    }),
    "polynomial": ("1 + x * (0.5 + x * (0.25 + x * 0.125))", {
        "powers": (lambda x: 1 + 0.5 * x + 0.25 * x * x + 0.125 * x * x * x, "powers", ALL),
        "Estrin": (lambda x: (1 + 0.5 * x) + (x * x) * (0.25 + 0.125 * x), "Estrin's pairs", ALL),
    }),
    "hypotenuse": ("torch.hypot(x[..., ::2], x[..., 1::2])", {
        "root": (lambda x: torch.sqrt(x[..., ::2] ** 2 + x[..., 1::2] ** 2), "square root of the squares", ALL),
    }),
    "leaky, scaled": ("F.leaky_relu(x, 0.01) / 3", {
        "third": (lambda x: torch.maximum(x, 0.01 * x) * (1 / 3), "maximum, times a third", ALL),
    }),
}
for _name, (_expression, _forms) in _FORMS.items():
    _task = FAMILY.problem(_name, _expression, {"x": "torch.randn(64, 64)"}, {}, dtypes=ALL)
    for _form, (_function, _why, _dtypes) in _forms.items():
        if _dtypes:
            _task.add(_form, _function, _why, dtypes=_dtypes)
