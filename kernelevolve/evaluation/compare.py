"""One call's answer against one trial: structure, types, shapes, aliases, then values."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernelevolve.evaluation.rules import RuleSet
from kernelevolve.evaluation.trials import Trial
from kernelevolve.evaluation.verdict import Verdict, clean
from kernelevolve.platforms.device import ALIGN, Memory
from kernelevolve.records import LeafError, Status


def examine(answer: dict[str, Any], memory: Memory, trial: Trial, rules: RuleSet,
            scale: float) -> tuple[Verdict | None, list[LeafError]]:
    """Judge the runner's answer to one `call`. None means nothing was found wrong.

    The answer comes from the candidate's process, so nothing in it is trusted: a malformed one is dishonest.
    """
    try:
        verdict, errors = _examine(answer, memory, trial, rules, scale)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        text = clean(f"{type(error).__name__}: {error}", 300)
        return Verdict(Status.DISHONEST, f"the answer of its process is malformed: {text}"), []
    return verdict and Verdict(verdict.status, clean(verdict.detail, 4000)), errors


def _examine(answer: dict[str, Any], memory: Memory, trial: Trial, rules: RuleSet,
             scale: float) -> tuple[Verdict | None, list[LeafError]]:
    where = f"trial {trial.name} (seed {trial.seed})"
    if not same_structure(answer["tree"], trial.tree):
        return Verdict(Status.WRONG_STRUCTURE,
                       f"{where}: expected {show(trial.tree)}, got {show(answer['tree'])}"), []
    leaves = answer["leaves"]
    for i, (leaf, own) in enumerate(zip(leaves, trial.reference, strict=True)):
        found = _examine_form(leaf, own, trial.types[i], view=trial.views[i])
        if found is not None:
            return Verdict(found[0], f"{where}: output {i} {found[1]}"), []
    errors = []
    bad: Verdict | None = None
    for i, (leaf, own, true) in enumerate(zip(leaves, trial.reference, trial.truth, strict=True)):
        got = read(memory, int(leaf["start"]), own)
        name = f"{trial.name} (seed {trial.seed})"
        error = rules.judge(got, truth=true, reference=own, leaf=i, trial=name, scale=scale, terms=trial.terms)
        errors.append(error)
        if not error.passed and bad is None:
            bad = Verdict(Status.WRONG_VALUE, f"{where}: {_explain(got, own, true, error)}")
    return bad, errors


def _examine_form(leaf: dict[str, Any], own: torch.Tensor, kind: str, *, view: bool) -> tuple[Status, str] | None:
    """What is wrong with a leaf before its values are looked at."""
    dtype = str(own.dtype).removeprefix("torch.")
    if leaf["type"] != kind:
        return Status.DISHONEST, f"is a {leaf['type']}; expected a plain {kind} with its values computed"
    if leaf["device"] != str(own.device):
        return Status.WRONG_STRUCTURE, f"is on {leaf['device']}; expected {own.device}"
    if leaf["shape"] != list(own.shape):
        return Status.WRONG_SHAPE, f"has shape {leaf['shape']}; expected {list(own.shape)}"
    if leaf["dtype"] != dtype:
        return Status.WRONG_DTYPE, f"is {leaf['dtype']}; expected {dtype}"
    if leaf["overlaps"] and not view:
        return Status.DISHONEST, "shares memory with an input; expected a result of its own"
    if leaf["kept"] and not view:
        return Status.DISHONEST, "is the buffer that a former call returned; expected a fresh one each time"
    return None


def read(memory: Memory, start: int, like: torch.Tensor) -> torch.Tensor:
    """A copy of the leaf at `start`, shape and dtype of `like`."""
    size = like.numel() * like.element_size()
    if not size:
        return torch.empty_like(like)
    if start < 0 or start % ALIGN or start + size > memory.size:
        raise ValueError(f"a leaf at byte {start} of {memory.size}")
    return memory.bytes[start : start + size].view(like.dtype).reshape(like.shape).clone()


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
        text = ", ".join(show(v) for v in value[:8]) + (", …" if len(value) > 8 else "")
        text = text if len(text) < 100 else text[:100] + "…"
        return f"({text})" if kind == "tuple" else f"[{text}]"
    if kind == "dict":
        return "{" + ", ".join(f"{k!r}: {show(v)}" for k, v in value[:20]) + "}"
    return "tensor" if kind == "tensor" else f"an object of type {value}" if kind == "object" else str(value)


def _explain(got: torch.Tensor, own: torch.Tensor, true: torch.Tensor, error: LeafError) -> str:
    """How many elements, how far off, and where the worst one is."""
    if not got.is_floating_point():
        wrong = got != own
        count = int(wrong.sum())
    elif bool((torch.isfinite(own) & ~torch.isfinite(got)).any()):
        wrong = torch.isfinite(own) & ~torch.isfinite(got)
        count = int(wrong.sum())
    else:
        difference = (got.double() - true.double()).abs().nan_to_num(math.inf)
        wrong = difference == difference.max()
        count = int((difference > error.limit * true.double().abs()).sum())
    place = [int(k) for k in wrong.nonzero()[0]] if bool(wrong.any()) else []
    kind = "not finite" if got.is_floating_point() and not torch.isfinite(got[tuple(place)]) else "off"
    value, expected = got[tuple(place)].item(), own[tuple(place)].item()
    return (f"output {error.leaf}: {count} of {got.numel()} elements {kind}, such as {value!r} at {place} where "
            f"{expected!r} is expected; relative error {error.error:.3g}, the reference's own "
            f"{error.reference_error:.3g}, limit {error.limit:.3g}, largest difference {error.max_abs:.3g}")
