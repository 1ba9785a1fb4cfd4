"""What "correct" means: three rule sets, recorded with every result.

Every rule looks at one output leaf of one trial and answers a `records.LeafError`. Integer and boolean
leaves are exact under every rule: an element is right when it equals the PyTorch reference's or the float64
truth's (where those two differ, rounding decided, and either decision is honest).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch

from kernelevolve.evaluation.conditioning import NONE, Sensitivity
from kernelevolve.records import LeafError
from kernelevolve.settings import rule_set

FLOOR_ULPS = {"float64": 12.0, "float32": 12.0, "float16": 2.0, "bfloat16": 2.0}
"""Floor of `strict`'s relative error, in units of the dtype's machine epsilon.

Twelve in the wide types: an elementary function of 4 ulp (a fast exp), a product and a division (0.5 ulp each), and
a running sum of 256 smaller terms onto a first one that dominates (0.29 sqrt(256) = 4.6), with some room. Two in the
narrow types, where a kernel is expected to compute wide and to round once (0.5 ulp).
"""

SUM_ULPS = 0.15
"""Error of a running sum of n random terms over sqrt(n), in units of epsilon; wide types only.

An addition errs by 0.212 eps of its result (uniform within half an ulp, logarithmic mantissas). The partial sums of
terms of random sign grow like sqrt(k), so their errors come to 0.212 sqrt(n / 2); those of positive terms to 0.212
sqrt(n / 3) (the model of Higham and Mary 2019). Measured: 0.145 to 0.158, and 0.111 to 0.118.
"""

MAX_ULPS = 24.0
"""Where the growth ends: 1.25 times a running sum of 2^14 terms; anyone splits longer sums over threads and lanes.

The other side of it: an emulated product that drops its second-order terms (bf16x3) errs by 31.6 eps on uniform
zero-mean inputs and 37 on normal ones, whatever the length of the sum, and must be refused.
"""

CHANCE_Z = 3.72
"""Quantile of the normal distribution at 1 - 1e-4: how rarely chance alone may refuse an honest sum, per leaf."""

ELEMENT_FACTOR = 16.0
"""An element may be off by this many norm floors of the leaf's largest value.

In a few rows the errors of a sum do conspire: 256 terms below half an ulp of the first are all lost, which is 128
epsilon or 11 floors in the wide types. Such rows are too few to move the norm, and a wild element is far beyond.
"""


class RuleSet(ABC):
    """One meaning of correct."""

    name: str

    def judge(self, output: torch.Tensor, *, truth: torch.Tensor, reference: torch.Tensor, leaf: int, trial: str,
              scale: float = 1.0, terms: int = 1, sensitivity: Sensitivity = NONE) -> LeafError:
        """Judge one leaf.

        Args:
            output: The candidate's; any shape, dtype equal to the reference's.
            truth: The float64 (or exact) result, same shape.
            reference: The PyTorch reference's own result, same shape and dtype as `output`.
            leaf: Number of the leaf.
            trial: Name of the trial.
            scale: The problem's TOLERANCE: multiplies the rule's limits.
            terms: Length of the longest sum that an element may be made of, as far as shapes tell.
            sensitivity: How far one rounding of the inputs moves this leaf. It can only widen the limits, so it need
                not be worked out for an output that passes without.
        """
        if not (output.is_floating_point() or output.is_complex()):
            wrong = int(((output != reference) & (output != truth.to(output.dtype))).sum())
            off = int((reference != truth.to(reference.dtype)).sum())
            return LeafError(leaf, trial, float(wrong), float(off), 0.0, float(wrong), wrong == 0)
        return self.judge_float(output, truth, reference, leaf, trial, scale, terms, sensitivity)

    @abstractmethod
    def judge_float(self, output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor, leaf: int, trial: str,
                    scale: float, terms: int, sensitivity: Sensitivity) -> LeafError:
        """`judge` for a floating-point leaf."""


class Strict(RuleSet):
    """Error against float64 at most twice the PyTorch reference's own, in norm and in the worst element."""

    name = "strict"

    def judge_float(self, output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor, leaf: int, trial: str,
                    scale: float, terms: int, sensitivity: Sensitivity) -> LeafError:
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
        floor = floor_of(output.dtype, terms, true.numel())
        # The floor is meant for a leaf that moves by about epsilon when its inputs are rounded.
        ill = floor / torch.finfo(output.dtype).eps
        limit = scale * max(2 * own_error, floor if norm > 0 else 0.0, ill * sensitivity.norm)
        # Below the smallest normal number, relative precision ends.
        limit_worst = scale * max(2 * own_worst, ELEMENT_FACTOR * floor * largest, ill * sensitivity.worst,
                                  torch.finfo(output.dtype).tiny)
        passed = (error <= limit or worst <= torch.finfo(output.dtype).tiny) and worst <= limit_worst
        return LeafError(leaf, trial, error, own_error, limit, worst, passed)


class AllClose(RuleSet):
    """`torch.allclose` against the reference itself, with atol = rtol, as KernelBench's evaluator does."""

    def __init__(self, name: str, limits: dict[str, float], default: float) -> None:
        self.name, self._limits, self._default = name, limits, default

    def judge_float(self, output: torch.Tensor, truth: torch.Tensor, reference: torch.Tensor, leaf: int, trial: str,
                    scale: float, terms: int, sensitivity: Sensitivity) -> LeafError:
        """`error` is the largest |difference| / (1 + |reference|), which passes up to the tolerance."""
        limit = scale * self._limits.get(_name(output), self._default)
        passed = torch.allclose(reference, output, atol=limit, rtol=limit)
        wide = torch.complex128 if output.is_complex() else torch.float64
        got, own, true = output.to(wide), reference.to(wide), truth.to(wide)
        error = float(((got - own).abs() / (1 + own.abs())).max()) if own.numel() else 0.0
        own_error = float(((own - true).abs() / (1 + true.abs())).max()) if own.numel() else 0.0
        worst = float((got - own).abs().max()) if own.numel() else 0.0
        return LeafError(leaf, trial, _plain(error), _plain(own_error), limit, _plain(worst), passed)


def spread(elements: int) -> float:
    """By how much the norm of that many independent errors may pass its expectation, but for a chance of 1e-4.

    The root of a chi-squared quantile over its degrees of freedom, by Wilson and Hilferty 1931: 4.0 for one
    element, 1.34 for 64, 1.02 for 16384.
    """
    part = 2 / (9 * max(elements, 1))
    return float((1 - part + CHANCE_Z * part**0.5) ** 1.5)


def floor_of(dtype: torch.dtype, terms: int, elements: int = 1) -> float:
    """Relative error that `strict` always grants a well-conditioned leaf of this dtype.

    Args:
        dtype: Of the leaf.
        terms: Length of the longest sum.
        elements: How many the leaf holds. A sum may be shared by as many of them as it has terms (softmax).
    """
    ulps = FLOOR_ULPS.get(str(dtype).removeprefix("torch."), 12.0)
    if ulps > 2:
        length = max(terms, 1)
        ulps = max(ulps, min(SUM_ULPS * length**0.5 * spread(elements // length), MAX_ULPS * spread(elements)))
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
