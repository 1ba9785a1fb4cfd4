"""How far a result moves when its inputs are rounded once: what no kernel can be blamed for.

exp(50 x), attention over large scores, a sum whose terms cancel: there the last digit of an input decides, and a
reference that happens to come out well says nothing about its next honest rival.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch


@dataclasses.dataclass(frozen=True)
class Sensitivity:
    """Change of one output leaf when every floating input is moved by one rounding, up or down at random."""

    norm: float = 0.0
    """2-norm of the change over the 2-norm of the truth; infinite where that is not finite."""
    worst: float = 0.0
    """Largest absolute change of an element."""


NONE = Sensitivity()


def nudged(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A float64 or complex128 copy of a floating input, each element moved by one unit roundoff, up or down.

    Numbers of float16 and bfloat16 are moved by float32's: kernels are expected to compute wide.
    """
    unit = torch.finfo(x.dtype if x.dtype in (torch.float64, torch.complex128) else torch.float32).eps / 2
    signs = torch.randint(0, 2, x.shape, generator=generator).to(x.device) * 2 - 1
    wide = x.to(torch.complex128 if x.is_complex() else torch.float64)
    return wide * (1 + unit * signs)


def sensitivity(twin: Callable[[list[torch.Tensor]], list[torch.Tensor]], leaves: list[torch.Tensor],
                truth: list[torch.Tensor], seed: int) -> list[Sensitivity]:
    """Of each output leaf.

    Args:
        twin: The float64 reference: takes wide inputs (which it may change) and answers its output leaves.
        leaves: Inputs as given.
        truth: What the twin made of the inputs as they are.
        seed: Of the directions.
    """
    generator = torch.Generator().manual_seed(seed)
    moved = twin([nudged(t, generator) if t.is_floating_point() or t.is_complex() else t.clone() for t in leaves])
    found = []
    for true, other in zip(truth, moved, strict=True):
        if not (true.is_floating_point() or true.is_complex()) or true.shape != other.shape or not true.numel():
            found.append(NONE)
            continue
        finite = torch.isfinite(true) & torch.isfinite(other)
        change, size = (other - true)[finite].abs(), true[finite].abs()
        if not change.numel():
            found.append(NONE)
            continue
        norm, worst = float(size.norm()), float(change.max())
        found.append(Sensitivity(float(change.norm()) / norm if norm > 0 else 0.0, worst))
    return found


def of_trial(trial: Any) -> list[Sensitivity]:
    """The same of a `trials.Trial`, whose weights hold the twin."""
    from kernelevolve.evaluation.inside.tensors import flatten, unflatten

    def twin(wide: list[torch.Tensor]) -> list[torch.Tensor]:
        leaves: list[torch.Tensor] = []
        torch.manual_seed(trial.seed)
        with torch.no_grad():
            flatten(trial.weights.twin(*unflatten(trial.args, wide)), leaves)
        return leaves

    return sensitivity(twin, trial.leaves, trial.truth, trial.seed)
