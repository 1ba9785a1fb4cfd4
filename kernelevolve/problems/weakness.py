"""Whether a problem's check has teeth: stubs that compute nothing are tried as candidates and must fail.

A problem is weak when zeros, a constant, a copy of an input or the answer to other inputs passes at
atol = rtol = 1e-4, or when an input can be replaced without a visible change, or all of the weights. A weak
problem can be searched; every result carries the reason.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import torch

from kernelevolve.problems import leaves
from kernelevolve.problems.check import Clock, Sample, run
from kernelevolve.problems.module import ProblemModule, seed_all


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Why stubs pass (empty: they do not), and which tensors the answer depends on ("input0", "weight", …)."""

    reason: str
    matters: frozenset[str]


def examine(module: ProblemModule, sample: Sample, clock: Clock) -> Verdict:
    """Try the stubs, then replace inputs and parameters one by one, then all parameters at once."""
    truth = sample.tensors
    try:
        elsewhere = [t.clone() for _, t in run(module, sample.model, sample.other_inputs)]
    except Exception as error:
        raise module.blame(error, "Model.forward on a second draw of inputs") from error
    reasons = []
    if leaves.close([torch.zeros_like(t) for t in truth], truth):
        reasons.append(f"an all-zero output passes at {leaves.ATOL:g}")
    elif leaves.close(elsewhere, truth):
        reasons.append(f"other random inputs give the same output at {leaves.ATOL:g}")
    elif leaves.close([_constant(a, b) for a, b in zip(truth, elsewhere, strict=True)], truth):
        reasons.append(f"a constant output passes at {leaves.ATOL:g}")
    elif all(any(_copy_passes(t, x) for x in sample.inputs if isinstance(x, torch.Tensor)) for t in truth):
        reasons.append(f"a copy of an input passes at {leaves.ATOL:g}")

    matters = set()
    for i, (mine, other) in enumerate(zip(sample.inputs, sample.other_inputs, strict=True)):
        if isinstance(mine, torch.Tensor) and mine.numel():
            replaced = [other if j == i else t for j, t in enumerate(sample.inputs)]
            if _changes(module, sample, replaced):
                matters.add(f"input{i}")
            elif not reasons:
                reasons.append(f"input {i} has no effect on the output at {leaves.ATOL:g}")

    parameters = [(name, p) for name, p in sample.model.named_parameters() if p.numel()]
    for name, p in parameters:
        # A deep network has hundreds of parameters and a slow forward: then all of them are taken to matter.
        if sample.call_s * len(parameters) < min(15.0, clock.left_s() / 4):
            with _redrawn([p]):
                if _changes(module, sample, sample.inputs):
                    matters.add(name)
        else:
            matters.add(name)
    if parameters and not reasons:
        with _redrawn([p for _, p in parameters]):
            if not _changes(module, sample, sample.inputs):
                reasons.append(f"the weights have no effect on the output at {leaves.ATOL:g}")
    return Verdict("; ".join(reasons), frozenset(matters))


def _changes(module: ProblemModule, sample: Sample, inputs: list[Any]) -> bool:
    """Whether the answer differs visibly. An exception is an effect: the value was looked at."""
    try:
        output = [t for _, t in run(module, sample.model, inputs)]
    except Exception:
        return True
    return not leaves.close(output, sample.tensors)


@contextlib.contextmanager
def _redrawn(parameters: list[torch.nn.Parameter]) -> Iterator[None]:
    kept = [p.detach().clone() for p in parameters]
    seed_all(1)
    try:
        for p in parameters:
            if p.is_floating_point():
                spread = float(p.std()) if p.numel() > 1 else 0.0
                p.copy_(torch.randn(p.shape, dtype=torch.float32) * (spread or 1.0) + float(p.mean()))
            else:
                p.copy_(p.flatten()[torch.randperm(p.numel())].view(p.shape))
        yield
    finally:
        for p, before in zip(parameters, kept, strict=True):
            p.copy_(before)


def _constant(truth: torch.Tensor, elsewhere: torch.Tensor) -> torch.Tensor:
    """The best constant that a stub could know from another draw: mean of floats, most frequent of exact values."""
    if not elsewhere.numel():
        return torch.zeros_like(truth)
    if truth.is_floating_point() or truth.is_complex():
        return torch.full_like(truth, elsewhere.mean().item())
    values, counts = elsewhere.unique(return_counts=True)
    return torch.full_like(truth, values[counts.argmax()].item())


def _copy_passes(truth: torch.Tensor, x: torch.Tensor) -> bool:
    if truth.is_complex() != x.is_complex() or x.numel() != truth.numel():
        return False
    return leaves.close([x.reshape(truth.shape).to(truth.dtype)], [truth])
