"""Whether a reference can serve as one: it runs, is finite, repeatable, pure, and agrees with its other forms.

Each check raises ProblemError with the file, the line and what was expected. Repeatable means: the same model
gives the same answer to the same inputs again, after a call with other inputs and under another state of the
random generators, and so does a second model under the same seed. Bits may differ where an operator sums in
no fixed order; the norm of the difference may be 1e-6 of the norm of the answer.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Protocol

import torch

from kernelevolve import errors
from kernelevolve.problems import leaves
from kernelevolve.problems.module import ProblemModule, seed_all

SEED_A, SEED_B = 20240229, 7919
REPEAT_LIMIT = 1e-6
REFERENCE_LIMIT = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest relative error of one of REFERENCES against the truth, per dtype, unless Model's own times four is larger."""


class Clock(Protocol):
    """Seconds that are left."""

    timeout_s: float

    def left_s(self) -> float:
        """Seconds until the limit."""


@dataclasses.dataclass
class Sample:
    """One model, two draws of inputs, and the answer to the first; what the later checks work with."""

    model: torch.nn.Module
    inputs: list[Any]
    other_inputs: list[Any]
    output: list[tuple[str, torch.Tensor]]
    output_bytes: int
    """Of the answer, memory that its leaves share counted once."""
    call_s: float

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The answer's leaves."""
        return [t for _, t in self.output]

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name."""
        return {name: t.detach() for name, t in [*self.model.named_parameters(), *self.model.named_buffers()]}


def run(module: ProblemModule, model: torch.nn.Module, inputs: list[Any]) -> list[tuple[str, torch.Tensor]]:
    """Call the model and flatten its answer. Raises ProblemError for an exception or a leaf that is no tensor."""
    name = type(model).__name__
    try:
        value = model(*inputs)
    except Exception as error:
        raise module.blame(error, f"{name}.forward", at=type(model).forward) from error
    try:
        output = leaves.flatten(value)
    except leaves.LeafTypeError as error:
        raise module.error(f"{name}.forward: {error}", at=type(model).forward) from error
    if not output:
        raise module.error(f"{name}.forward returned no tensor at all; expected at least one", at=type(model).forward)
    return output


def check_reference(module: ProblemModule, clock: Clock) -> Sample:
    """All checks of Model itself at the tuned sizes."""
    forward = module.Model.forward
    model, inputs, other = module.model(SEED_A), module.inputs(SEED_A), module.inputs(SEED_B)
    _check_inputs(module, inputs, other)
    module.check_forward(model, inputs)

    kept = _fingerprints(inputs)
    weights = {name: leaves.fingerprint(p) for name, p in model.named_parameters()}
    seed_all(SEED_A)
    started = time.monotonic()
    output = run(module, model, inputs)
    call_s = time.monotonic() - started
    calls = 8 + len(inputs) + len(module.references)
    if call_s * calls > clock.left_s():
        raise module.error(
            f"one call of the reference took {call_s:.1f} s and the checks need at least {calls} more; "
            f"{clock.left_s():.0f} s of {clock.timeout_s:g} s are left. Use smaller sizes or raise timeout_s",
            at=forward,
        )
    _check_pure(module, inputs, kept, output)
    for name, p in model.named_parameters():
        if leaves.fingerprint(p) != weights[name]:
            text = f"Model.forward changed its parameter {name}; expected it to leave weights alone"
            raise module.error(text, at=forward)
    _check_finite(module, output)

    first = [t.clone() for _, t in output]
    answer = [(where, t) for (where, _), t in zip(output, first, strict=True)]
    sample = Sample(model, inputs, other, answer, leaves.distinct_bytes([t for _, t in output]), call_s)
    seed_all(SEED_B)
    run(module, model, other)
    _check_repeats(module, first, run(module, model, inputs),
                   "a second call with the same inputs, after one with others, gave another answer",
                   "a forward that draws no random numbers and keeps no state from call to call")
    fresh = module.model(SEED_A)
    seed_all(SEED_B)
    _check_repeats(module, first, run(module, fresh, inputs),
                   "a second Model built under the same seed gave another answer to the same inputs",
                   "weights that depend on torch's seed alone, and no global state")
    return sample


def check_references(module: ProblemModule, sample: Sample) -> None:
    """Each of REFERENCES under the same seed and inputs must be as right as Model, against a float64 truth."""
    truth = _float64_truth(module, sample)
    for name, kind in module.references.items():
        model = module.model(SEED_A, kind)
        module.check_forward(model, sample.inputs)
        kept = _fingerprints(sample.inputs)
        output = run(module, model, sample.inputs)
        _check_pure(module, sample.inputs, kept, output, kind)
        if len(output) != len(sample.output):
            text = f"REFERENCES[{name!r}] returned {len(output)} tensors, Model {len(sample.output)}"
            raise module.error(text, at=kind)
        for (where, t), (_, expected), true in zip(output, sample.output, truth, strict=True):
            if t.shape != expected.shape or t.dtype != expected.dtype:
                text = f"{where} is {t.dtype} {tuple(t.shape)}; Model gives {expected.dtype} {tuple(expected.shape)}"
                raise module.error(f"REFERENCES[{name!r}]: {text}", at=kind)
            limit = max(4 * leaves.relative_error(expected, true), REFERENCE_LIMIT.get(t.dtype, 0.0))
            error = leaves.relative_error(t, true)
            if not error <= limit:
                raise module.error(
                    f"REFERENCES[{name!r}] disagrees with Model: {where} has error {error:.2e} (limit {limit:.1e}) "
                    "against float64. Expected the same function with weights drawn in Model's order", at=kind,
                )


def check_cases(module: ProblemModule) -> None:
    """Every further entry of CASES must run on the tuned sizes' contract: finite and of the same structure."""
    for name in list(module.cases)[1:]:
        module.use_case(name)
        try:
            model, inputs = module.model(SEED_A), module.inputs(SEED_A)
            module.check_forward(model, inputs)
            output = run(module, model, inputs)
            _check_finite(module, output)
            for label, kind in module.references.items():
                other = run(module, module.model(SEED_A, kind), inputs)
                if not leaves.close([t for _, t in other], [t for _, t in output], tolerance=1e-3):
                    raise module.error(f"REFERENCES[{label!r}] disagrees with Model in CASES[{name!r}]", at=kind)
        except errors.ProblemError as error:
            raise errors.ProblemError(f"{error} (under CASES[{name!r}])") from error
        finally:
            module.use_case(None)


def _check_inputs(module: ProblemModule, inputs: list[Any], other: list[Any]) -> None:
    def refuse(text: str) -> errors.ProblemError:
        return module.error(f"get_inputs(): {text}", at=module.module.get_inputs)

    if not any(isinstance(t, torch.Tensor) for t in inputs):
        raise refuse(f"returned {len(inputs)} values and no tensor among them; expected at least one")
    storages: dict[int, int] = {}
    for i, t in enumerate(inputs):
        if isinstance(t, (list, tuple, dict)):
            raise refuse(f"input {i} is a {type(t).__name__}; expected tensors, numbers, strings or None")
        if not isinstance(t, torch.Tensor):
            continue
        if t.layout is not torch.strided or t.device.type != "cpu":
            raise refuse(f"input {i} is a {t.layout} tensor on {t.device}; expected a dense one on the CPU")
        address = t.untyped_storage().data_ptr()
        if t.numel() and address in storages:
            raise refuse(f"inputs {storages[address]} and {i} share memory, which copies sent to a candidate cannot "
                         "keep; return a .clone() of one")
        storages[address] = i
    for i, (a, b) in enumerate(zip(inputs, other, strict=False)):
        kinds = [(tuple(t.shape), t.dtype) if isinstance(t, torch.Tensor) else type(t).__name__ for t in (a, b)]
        if kinds[0] != kinds[1]:
            raise refuse(f"input {i} is {kinds[0]} under one seed and {kinds[1]} under another; expected the same "
                         "shapes for every seed, with ragged totals held constant")
    if len(inputs) != len(other):
        raise refuse(f"returned {len(inputs)} values under one seed and {len(other)} under another")


def _fingerprints(inputs: list[Any]) -> list[Any]:
    return [leaves.fingerprint(t) if isinstance(t, torch.Tensor) else None for t in inputs]


def _check_pure(module: ProblemModule, inputs: list[Any], kept: list[Any], output: list[tuple[str, torch.Tensor]],
                kind: type[torch.nn.Module] | None = None) -> None:
    kind = kind or module.Model
    for i, (t, before) in enumerate(zip(inputs, kept, strict=True)):
        if not isinstance(t, torch.Tensor):
            continue
        if leaves.fingerprint(t) != before:
            raise module.error(f"{kind.__name__}.forward changed its input {i} in place; expected inputs left as they "
                               "are: return the new value as an output", at=kind.forward)
        for where, leaf in output:
            if leaf.numel() and leaf.untyped_storage().data_ptr() == t.untyped_storage().data_ptr():
                raise module.error(f"{kind.__name__}.forward: {where} shares memory with input {i}: nothing to "
                                   "compute; leave it out or return a .clone()", at=kind.forward)


def _check_finite(module: ProblemModule, output: list[tuple[str, torch.Tensor]]) -> None:
    for where, t in output:
        if (t.is_floating_point() or t.is_complex()) and not (good := torch.isfinite(t)).all():
            first = tuple((~good).nonzero()[0].tolist())
            raise module.error(
                f"Model.forward: {where} has {int((~good).sum())} NaN or infinite values of {t.numel()}, the first "
                f"({t[first]}) at {first}; expected a finite answer to what get_inputs gives", at=module.Model.forward,
            )


def _check_repeats(module: ProblemModule, first: list[torch.Tensor], again: list[tuple[str, torch.Tensor]],
                   what: str, expected: str) -> None:
    for a, (where, b) in zip(first, again, strict=False):
        if len(first) != len(again) or a.shape != b.shape or a.dtype != b.dtype:
            raise module.error(f"not deterministic: {what} ({where} has another shape or dtype); expected {expected}",
                               at=module.Model.forward)
        error = leaves.relative_error(b, a)
        if error > REPEAT_LIMIT:
            raise module.error(f"not deterministic: {what} ({where} differs by {error:.1e}); expected {expected}",
                               at=module.Model.forward)


def _float64_truth(module: ProblemModule, sample: Sample) -> list[torch.Tensor]:
    """Model in float64 on the same values, or the answer itself where Model does not run in float64."""
    try:
        model = module.model(SEED_A).double()
        inputs = [t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in sample.inputs]
        truth = [t for _, t in run(module, model, inputs)]
    except Exception:  # a forward may insist on its dtype; then Model's own answer is the best truth there is
        return sample.tensors
    if [t.shape for t in truth] != [t.shape for t in sample.tensors]:
        return sample.tensors
    return [a if b.is_floating_point() else b for a, b in zip(truth, sample.tensors, strict=True)]
