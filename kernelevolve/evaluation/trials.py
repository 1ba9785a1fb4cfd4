"""Trials: fresh inputs, what the PyTorch reference makes of them, and the float64 truth. The judge's own.

Input distributions are derived from the problem's `get_inputs`, so that a kernel which is right only on
positive or well-scaled numbers shows. Only floating-point inputs are changed; integers, booleans, sorted tensors
(boundaries, keys) and tensors with infinities (masks) stay as `get_inputs` makes them.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import logging
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from kernelevolve.errors import ProblemError, UnknownNameError
from kernelevolve.evaluation.inside.library_log import LibraryLog
from kernelevolve.evaluation.inside.tensors import flatten, layout, unflatten
from kernelevolve.evaluation.weights import Weights, changeable, renew, state_of, trained
from kernelevolve.languages.base import import_file
from kernelevolve.platforms.device import Device, Host, raw

log = logging.getLogger(__name__)

GIVEN = "as given"


def _sparse(x: torch.Tensor) -> torch.Tensor:
    """Nine tenths near zero, one in a hundred exactly zero, one in a thousand three times too large.

    Not mostly zeros, and no huge outliers: equal or vanishing terms make every rounding of a running sum go the same
    way, and an honest sum of 256 exponentials would lose 4e-6.
    """
    chance = torch.rand(x.shape)
    scale = torch.where(chance < 0.01, 0.0, torch.where(chance < 0.9, 0.05, torch.where(chance > 0.999, 3.0, 1.0)))
    return x * scale.to(x.dtype)


DISTRIBUTIONS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zero mean": lambda x: x - x.mean(),
    "large": lambda x: x * 100,
    "small": lambda x: x * 1e-3,
    "sparse": _sparse,
}


@dataclasses.dataclass
class Trial:
    """One set of inputs with the reference's output and the truth."""

    name: str
    seed: int
    weights: Weights
    args: Any
    """Skeleton of the argument list."""
    leaves: list[torch.Tensor]
    """Tensor arguments, as they must still be after a call."""
    specs: list[dict[str, Any]]
    size: int
    """Bytes of shared memory that the arguments need."""
    tree: Any
    """Skeleton of the reference's output."""
    types: list[str]
    reference: list[torch.Tensor]
    truth: list[torch.Tensor]
    """float64 (or exact) leaves, shapes as `reference`."""
    views: list[bool]
    """Whether the reference's leaf shares memory with an input."""
    mutates: bool
    """Whether the reference itself changes its inputs."""
    reference_s: float
    terms: int
    """Length of the longest sum that an output may hold, guessed from the inputs' shapes."""


class Factory:
    """Makes weights and trials from a problem file. Raises ProblemError when that cannot be used."""

    def __init__(self, path: Path, case: str | None, device: Device | None = None) -> None:
        self.device = device or Host()
        try:
            self.module: ModuleType = import_file(path)
        except Exception as error:
            raise ProblemError(f"the problem file does not import: {type(error).__name__}: {error}") from error
        for name in ("Model", "get_inputs"):
            if not hasattr(self.module, name):
                raise ProblemError(f"the problem file has no {name}; expected Model, get_inputs and get_init_inputs")
        cases = getattr(self.module, "CASES", {})
        self.case = case if case is not None else "tuned" if "tuned" in cases else None
        """Name of the input setting in use; None for the file's own."""
        if self.case is not None and self.case not in cases:
            raise UnknownNameError("case", self.case, list(cases))
        for key, value in cases.get(self.case, {}).items():
            setattr(self.module, key, value)
        self._number = itertools.count(1)
        self.skipped: dict[str, str] = {}
        """Distributions that say nothing about this problem, and why."""

    def weights(self, seed: int, *, loaded: bool) -> Weights:
        """A model constructed under `seed`; `loaded` replaces constant parameters (ones, zeros) by random values."""
        seed_all(seed)
        init = list(self.module.get_init_inputs()) if hasattr(self.module, "get_init_inputs") else []
        leaves: list[torch.Tensor] = []
        skeleton = flatten(init, leaves)
        torch.manual_seed(seed)
        model = self.module.Model(*init)
        if loaded and isinstance(model, torch.nn.Module):
            with torch.no_grad():
                for p in model.parameters():
                    if p.is_floating_point() and p.numel() and bool((p == p.flatten()[0]).all()):
                        p.add_(torch.rand_like(p) - 0.5)
        if isinstance(model, torch.nn.Module):
            model = model.to(self.device.name)
        twin = copy.deepcopy(model)
        if isinstance(twin, torch.nn.Module):
            twin = twin.double()
        number = next(self._number)
        return Weights(seed, skeleton, leaves, model, twin, state_of(model), number, number)

    def again(self, weights: Weights) -> Weights:
        """The same weights in a model of their own, to be refreshed."""
        if not trained(weights.model):
            return weights
        return dataclasses.replace(self.weights(weights.seed, loaded=False), build=weights.build,
                                   version=weights.version)

    def refresh(self, weights: Weights, seed: int) -> Weights:
        """New values for what training changes, in place; make no more trials with the old ones.

        Values are scaled one by one, so that signs, zeros and the order of sorted ones stay; only what was all zeros
        becomes something else. The same weights come back where there is nothing to train.
        """
        changing = trained(weights.model)
        if not changing:
            return weights
        seed_all(seed)
        with torch.no_grad():
            for tensor in changing:
                renew(tensor)
            twins = weights.twin.state_dict()
            for name, value in weights.model.state_dict().items():
                if isinstance(value, torch.Tensor) and name in twins:
                    twins[name].copy_(value)
        return dataclasses.replace(weights, state=state_of(weights.model), version=next(self._number), refreshed=True)

    def arguments(self, seed: int, distribution: str = GIVEN) -> tuple[Any, list[torch.Tensor]]:
        """Skeleton and tensors of one argument list."""
        seed_all(seed)
        leaves: list[torch.Tensor] = []
        args = flatten(list(self.module.get_inputs()), leaves)
        if distribution != GIVEN:
            leaves = _clone(leaves)
            for storage in by_storage(leaves):
                if all(map(changeable, storage)):
                    # The whole storage at once, so that strides and sharing stay as they were given.
                    leaf = storage[0]
                    flat = torch.empty(0, dtype=leaf.dtype)
                    flat.set_(leaf.untyped_storage())  # type: ignore[call-overload]
                    flat.copy_(DISTRIBUTIONS[distribution](flat))
        return args, self._move(leaves)

    def _move(self, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
        """To the device; what shares storage goes on sharing it."""
        if self.device.name == "cpu":
            return leaves
        twins: dict[int, torch.UntypedStorage] = {}
        moved = []
        for leaf in leaves:
            key = leaf.untyped_storage().data_ptr()
            bytes_ = twins.setdefault(key, raw(leaf).to(self.device.name).untyped_storage())
            empty = torch.empty(0, dtype=leaf.dtype, device=self.device.name)
            moved.append(empty.set_(bytes_, leaf.storage_offset(), leaf.shape, leaf.stride()))
        return moved

    def trial(self, weights: Weights, seed: int, distribution: str = GIVEN, number: int = 0) -> Trial | None:
        """One trial, or None when the distribution says nothing here (the reason is kept in `skipped`)."""
        if distribution in self.skipped:
            return None
        args, leaves = self.arguments(seed, distribution)
        if distribution != GIVEN and not any(changeable(leaf) for leaf in leaves):
            self.skipped[distribution] = "no floating-point input to change"
            return None
        try:
            trial = self._run(weights, seed, args, leaves, f"{number}: {distribution}")
        except Exception as error:
            if distribution == GIVEN:
                raise ProblemError(f"the reference fails on its own inputs: {type(error).__name__}: {error}") from error
            self.skipped[distribution] = f"the reference raises {type(error).__name__}"
            return None
        reason = _useless(trial)
        if reason and distribution != GIVEN:
            self.skipped[distribution] = reason
            return None
        return trial

    def library(self, weights: Weights, trial: Trial) -> dict[str, Any]:
        """The library operators of one call of the reference; empty when they cannot be counted."""
        given = _clone(trial.leaves)
        own = list(weights.model.parameters()) if isinstance(weights.model, torch.nn.Module) else []
        record = LibraryLog([*given, *own])
        try:
            torch.manual_seed(trial.seed)
            with torch.no_grad(), record:
                weights.model(*unflatten(trial.args, given))
            self.device.synchronize()
        except Exception as error:
            log.warning("the reference's operators cannot be counted: %s: %s", type(error).__name__, error)
            return {}
        return record.answer([])

    def _run(self, weights: Weights, seed: int, args: Any, leaves: list[torch.Tensor], name: str) -> Trial:
        specs, size = layout(leaves)
        given = _clone(leaves)
        with torch.no_grad():
            torch.manual_seed(seed)
            self.device.synchronize()
            start = time.perf_counter()
            output = weights.model(*unflatten(args, given))
            self.device.synchronize()
            took = time.perf_counter() - start
            own: list[torch.Tensor] = []
            tree = flatten(output, own)
            own = [t.detach() for t in own]
            torch.manual_seed(seed)
            wide = [t.double() if t.is_floating_point() else t.to(torch.complex128) if t.is_complex() else t.clone()
                    for t in leaves]
            exact: list[torch.Tensor] = []
            flatten(weights.twin(*unflatten(args, wide)), exact)
        truth = [t if i >= len(exact) or exact[i].shape != t.shape else exact[i] for i, t in enumerate(own)]
        storages = {t.untyped_storage().data_ptr() for t in given if t.numel()}
        views = [bool(t.numel()) and t.untyped_storage().data_ptr() in storages for t in own]
        mutates = any(not same_bits(a, b) for a, b in zip(given, leaves, strict=True))
        kept = [t.clone() if v else t for t, v in zip(own, views, strict=True)]
        return Trial(name, seed, weights, args, leaves, specs, size, tree, [type(t).__name__ for t in own], kept, truth,
                     views, mutates, took, _terms(leaves, own))


def seed_all(seed: int) -> None:
    """Seed torch, numpy and random: a problem file may use any of them."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, a NaN being equal to a NaN."""
    if torch.equal(a, b):
        return True
    return a.is_floating_point() and a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def _clone(leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copies that share storage among themselves as the originals do, with their strides."""
    storages: dict[int, torch.UntypedStorage] = {}
    copies = []
    for leaf in leaves:
        storage = leaf.untyped_storage()
        twin = storages.setdefault(storage.data_ptr(), storage.clone()) if storage.nbytes() else storage
        empty = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        copies.append(empty.set_(twin, leaf.storage_offset(), leaf.shape, leaf.stride()))
    return copies


def by_storage(leaves: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Leaves grouped by the storage they share."""
    groups: dict[int, list[torch.Tensor]] = {}
    for leaf in leaves:
        if leaf.numel():
            groups.setdefault(leaf.untyped_storage().data_ptr(), []).append(leaf)
    return list(groups.values())


def _terms(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> int:
    """The longest axis of a floating-point input, the first (the batch) of several left out; or all that it reduces."""
    found = 1
    smallest = min((t.numel() for t in outputs if t.numel()), default=1)
    for t in inputs:
        if t.is_floating_point() and t.numel():
            found = max(found, *t.shape[1:] if t.ndim > 1 else (t.numel(),), t.numel() // smallest)
    return found


def _useless(trial: Trial) -> str:
    """Why a derived trial cannot tell right from wrong; empty when it can."""
    for own, true in zip(trial.reference, trial.truth, strict=True):
        if not own.is_floating_point():
            continue
        if not bool(torch.isfinite(true).all()) or not bool(torch.isfinite(own).all()):
            return "the reference is not finite there"
        norm = float(true.double().norm())
        error = float((own.double() - true.double()).norm())
        if error > torch.finfo(own.dtype).eps ** 0.5 * norm:
            return "the reference itself has lost half of its digits there"
    return ""
