"""What "correct" means: three rule sets, recorded with every result.

Every rule looks at one output leaf of one trial and answers a `records.LeafError`. Integer and boolean
leaves are exact under every rule: an element is right when it equals the PyTorch reference's or the float64
truth's (where those two differ, rounding decided, and either decision is honest).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch

from kernelevolve.records import LeafError
from kernelevolve.settings import rule_set

FLOOR_ULPS = {"float64": 12.0, "float32": 12.0, "float16": 2.0, "bfloat16": 2.0}
"""Floor of `strict`'s relative error, in units of the dtype's machine epsilon.

Twelve in the wide types: an elementary function of 4 ulp (a fast exp), a product and a division (0.5 ulp each), and
a running sum of 256 smaller terms onto a first one that dominates (0.29 sqrt(256) = 4.6), with some room. Two in the
narrow types, where a kernel is expected to compute wide and to round once (0.5 ulp).
"""

SUM_ULPS = 0.25
"""Growth of the floor with the square root of the longest sum, in units of epsilon; wide types only.

PyTorch adds in a tree, so twice its error would refuse a plain running sum, which is honest. A running sum of n
positive terms is off by about 0.4 u sqrt(n / 3) = 0.115 eps sqrt(n), u being the unit roundoff, when rounding errors do
not conspire (Higham and Mary, A new approach to probabilistic rounding error analysis, 2019); the floor is twice
that. At n = 4096 it is 1.9e-6: an emulated product that drops its second-order terms (bf16x3: 3.8e-6 to 4.4e-6 on
zero-mean inputs, where fp32 has 1.1e-6) stays above it and above twice the reference.
"""
MAX_SUM = 2**16
"""Longer sums are split over threads and lanes by anyone."""

ELEMENT_FACTOR = 16.0
"""An element may be off by this many norm floors of the leaf's largest value.

In a few rows the errors of a sum do conspire: 256 terms below half an ulp of the first are all lost, which is 128
epsilon or 11 floors in the wide types. Such rows are too few to move the norm, and a wild element is far beyond.
"""


class RuleSet(ABC):
    """One meaning of correct."""

    name: str

    def judge(self, output: torch.Tensor, *, truth: torch.Tensor, reference: torch.Tensor, leaf: int, trial: str,
              scale: float = 1.0, terms: int = 1) -> LeafError:
        """Judge one leaf.

        Args:
            output: The candidate's; any shape, dtype equal to the reference's.
            truth: The float64 (or exact) result, same shape.
            reference: The PyTorch reference's own result, same shape and dtype as `output`.
            leaf: Number of the leaf.
            trial: Name of the trial.
            scale: The problem's TOLERANCE: multiplies the rule's limits.
            terms: Length of the longest sum that an element may be made of, as far as shapes tell.
        """
        if not (output.is_floating_point() or output.is_complex()):
            wrong = int(((output != reference) & (output != truth.to(output.dtype))).sum())
            off = int((reference != truth.to(reference.dtype)).sum())
            return LeafError(leaf, trial, float(wrong), float(off), 0.0, float(wrong), wrong == 0)
        return self.judge_float(output, truth, reference, leaf, trial, scale, terms)

    @abstractmethod
    def judge_float(self, output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor, leaf: int, trial: str,
                    scale: float, terms: int) -> LeafError:
        """`judge` for a floating-point leaf."""


class Strict(RuleSet):
    """Error against float64 at most twice the PyTorch reference's own, in norm and in the worst element."""

    name = "strict"

    def judge_float(self, output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor, leaf: int, trial: str,
                    scale: float, terms: int) -> LeafError:
        """Relative error in the 2-norm, and the largest absolute difference, each against its own limit."""
        wide = torch.complex128 if output.is_complex() else torch.float64
        got, own, true = output.to(wide), reference.to(wide), truth.to(wide)
        if not _same_nonfinite(got, own):
            return LeafError(leaf, trial, math.inf, 0.0, 0.0, math.inf, False)
        finite = torch.isfinite(own) & torch.isfinite(true)
        if not bool(finite.all()):
            got, own, true = got[finite], own[finite], true[finite]
        norm = float(true.norm()) if true.numel() else 0.0
        unit = norm if norm > 0 else 1.0
        difference = got - true
        error, own_error = float(difference.norm()) / unit, float((own - true).norm()) / unit
        worst = float(difference.abs().max()) if true.numel() else 0.0
        own_worst = float((own - true).abs().max()) if true.numel() else 0.0
        largest = float(true.abs().max()) if true.numel() else 0.0
        floor = floor_of(output.dtype, terms)
        limit = scale * max(2 * own_error, floor if norm > 0 else 0.0)
        # Below the smallest normal number, relative precision ends.
        limit_worst = scale * max(2 * own_worst, ELEMENT_FACTOR * floor * largest, torch.finfo(output.dtype).tiny)
        passed = (error <= limit or worst <= torch.finfo(output.dtype).tiny) and worst <= limit_worst
        return LeafError(leaf, trial, error, own_error, limit, worst, passed)


class AllClose(RuleSet):
    """`torch.allclose` against the reference itself, with atol = rtol, as KernelBench's evaluator does."""

    def __init__(self, name: str, limits: dict[str, float], default: float) -> None:
        self.name, self._limits, self._default = name, limits, default

    def judge_float(self, output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor, leaf: int, trial: str,
                    scale: float, terms: int) -> LeafError:
        """`error` is the largest |difference| / (1 + |reference|), which passes up to the tolerance."""
        limit = scale * self._limits.get(_name(output), self._default)
        passed = torch.allclose(reference, output, atol=limit, rtol=limit)
        wide = torch.complex128 if output.is_complex() else torch.float64
        got, own, true = output.to(wide), reference.to(wide), truth.to(wide)
        error = float(((got - own).abs() / (1 + own.abs())).max()) if own.numel() else 0.0
        own_error = float(((own - true).abs() / (1 + true.abs())).max()) if own.numel() else 0.0
        worst = float((got - own).abs().max()) if own.numel() else 0.0
        return LeafError(leaf, trial, _plain(error), _plain(own_error), limit, _plain(worst), passed)


def floor_of(dtype: torch.dtype, terms: int) -> float:
    """Relative error that `strict` always grants a leaf of this dtype."""
    ulps = FLOOR_ULPS.get(str(dtype).removeprefix("torch."), 12.0)
    if ulps > 2:
        ulps = max(ulps, SUM_ULPS * min(terms, MAX_SUM) ** 0.5)
    return ulps * torch.finfo(dtype).eps


RULES: dict[str, RuleSet] = {
    rule.name: rule
    for rule in (
        Strict(),
        AllClose("kernelbench-v0.1", {}, 1e-2),
        AllClose("kernelbench-main", {"float16": 1e-2, "bfloat16": 1e-2}, 1e-4),
    )
}


def get(name: str) -> RuleSet:
    """The rule set called `name`. Raises UnknownNameError."""
    return RULES[rule_set(name)]


def _same_nonfinite(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether NaN and infinities stand in the same places, infinities with the same sign."""
    if not bool(torch.equal(torch.isnan(a), torch.isnan(b))):
        return False
    infinite = torch.isinf(b)
    return bool(torch.equal(torch.isinf(a), infinite)) and bool(torch.equal(a[infinite], b[infinite]))


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _plain(value: float) -> float:
    """NaN would poison a maximum over trials; an unordered error is an infinite one."""
    return math.inf if math.isnan(value) else value
