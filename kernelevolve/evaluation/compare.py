"""One call's answer against one trial: structure, types, shapes, aliases, then values."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernelevolve.evaluation.inside.tensors import Memory
from kernelevolve.evaluation.rules import RuleSet
from kernelevolve.evaluation.trials import Trial
from kernelevolve.evaluation.verdict import Verdict
from kernelevolve.records import LeafError, Status


def examine(answer: dict[str, Any], memory: Memory, trial: Trial, rules: RuleSet,
            scale: float) -> tuple[Verdict | None, list[LeafError]]:
    """Judge the runner's answer to one `call`. None means nothing was found wrong.

    The answer comes from the candidate's process, so nothing in it is trusted: a malformed one is dishonest.
    """
    try:
        return _examine(answer, memory, trial, rules, scale)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        return Verdict(Status.DISHONEST, f"the answer of its process is malformed: {type(error).__name__}: {error}"), []


def _examine(answer: dict[str, Any], memory: Memory, trial: Trial, rules: RuleSet,
             scale: float) -> tuple[Verdict | None, list[LeafError]]:
    where = f"trial {trial.name} (seed {trial.seed})"
    if not same_structure(answer["tree"], trial.tree):
        return Verdict(Status.WRONG_STRUCTURE, f"{where}: expected {show(trial.tree)}, got {show(answer['tree'])}"), []
    leaves = answer["leaves"]
    for i, (leaf, own) in enumerate(zip(leaves, trial.reference, strict=True)):
        if leaf["type"] != trial.types[i]:
            return Verdict(Status.DISHONEST, f"{where}: output {i} is a {leaf['type']}; expected a plain "
                                             f"{trial.types[i]} with its values computed"), []
        dtype = str(own.dtype).removeprefix("torch.")
        if leaf["device"] != str(own.device):
            return Verdict(Status.WRONG_STRUCTURE, f"{where}: output {i} is on {leaf['device']}; expected {own.device}"), []
        if leaf["shape"] != list(own.shape):
            return Verdict(Status.WRONG_SHAPE, f"{where}: output {i} has shape {leaf['shape']}; expected {list(own.shape)}"), []
        if leaf["dtype"] != dtype:
            return Verdict(Status.WRONG_DTYPE, f"{where}: output {i} is {leaf['dtype']}; expected {dtype}"), []
        if leaf["overlaps"] and not trial.views[i]:
            return Verdict(Status.DISHONEST, f"{where}: output {i} shares memory with an input; expected a result of its own"), []
        if leaf["kept"] and not trial.views[i]:
            return Verdict(Status.DISHONEST, f"{where}: output {i} is the buffer that the former call returned; "
                                             "expected a fresh one, as PyTorch allocates"), []
    errors = []
    bad: Verdict | None = None
    for i, (leaf, own, true) in enumerate(zip(leaves, trial.reference, trial.truth, strict=True)):
        got = read(memory, int(leaf["start"]), own)
        error = rules.judge(got, truth=true, reference=own, leaf=i, trial=f"{trial.name} (seed {trial.seed})", scale=scale)
        errors.append(error)
        if not error.passed and bad is None:
            bad = Verdict(Status.WRONG_VALUE, f"{where}: {_explain(got, own, true, error)}")
    return bad, errors


def read(memory: Memory, start: int, like: torch.Tensor) -> torch.Tensor:
    """A copy of the leaf at `start`, shape and dtype of `like`."""
    size = like.numel() * like.element_size()
    if not size:
        return torch.empty_like(like)
    if start < 0 or start + size > memory.size:
        raise ValueError(f"a leaf at byte {start} of {memory.size}")
    flat = torch.frombuffer(memory.map, dtype=like.dtype, count=like.numel(), offset=start)
    return flat.reshape(like.shape).clone()


def same_structure(a: Any, b: Any) -> bool:
    """Whether two skeletons agree; plain floats to six digits, everything else exactly."""
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same_structure(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_structure(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


def show(skeleton: Any) -> str:
    """A skeleton in words: "(tensor, [tensor, None])"."""
    if not isinstance(skeleton, dict):
        return repr(skeleton)[:100]
    ((kind, value),) = skeleton.items()
    if kind in ("tuple", "list"):
        text = ", ".join(show(v) for v in value[:20])
        return f"({text})" if kind == "tuple" else f"[{text}]"
    if kind == "dict":
        return "{" + ", ".join(f"{k!r}: {show(v)}" for k, v in value[:20]) + "}"
    return "tensor" if kind == "tensor" else f"an object of type {value}" if kind == "object" else str(value)


def _explain(got: torch.Tensor, own: torch.Tensor, true: torch.Tensor, error: LeafError) -> str:
    """How many elements, how far off, and where the worst one is."""
    if not got.is_floating_point():
        wrong = got != own
        count = int(wrong.sum())
    else:
        nonfinite = int((~torch.isfinite(got)).sum() - (~torch.isfinite(own)).sum())
        difference = (got.double() - true.double()).abs()
        difference = torch.where(torch.isnan(difference) & ~torch.isnan(true), torch.inf, difference).nan_to_num(0.0, posinf=math.inf)
        wrong = difference == difference.max() if difference.numel() else difference > 0
        if nonfinite > 0:
            wrong = ~torch.isfinite(got) & torch.isfinite(own)
        count = nonfinite if nonfinite > 0 else int((difference > error.limit * true.double().abs().clamp_min(1e-30)).sum())
    place = [int(k) for k in wrong.nonzero()[0]] if bool(wrong.any()) else []
    kind = "not finite" if got.is_floating_point() and not torch.isfinite(got[tuple(place)]) else "off"
    value, expected = got[tuple(place)].item(), own[tuple(place)].item()
    return (f"output {error.leaf}: {count} of {got.numel()} elements {kind}, such as {value!r} at {place} where {expected!r} "
            f"is expected; relative error {error.error:.3g}, the reference's own {error.reference_error:.3g}, "
            f"limit {error.limit:.3g}, largest difference {error.max_abs:.3g}")
