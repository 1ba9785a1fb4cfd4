"""Bytes that any implementation must move, and the operations that the reference does. For workers only.

`bytes_min` is a lower bound, found in two steps. (1) The reference runs under a dispatch trace that marks the
elements of each input, parameter and buffer that some operator reads; operators that only select (embedding,
gather, index, …) mark what they select, so that a table counts by the rows that are used, once each. (2) Some
marked elements per tensor, drawn at random, are changed one at a time; the tensor counts by the share of them that
changes the answer: fully when all do, otherwise by the lower end of that share's 95 % interval (Wilson), so
that padding which a mask removes does not count. Outputs count once, expanded or shared memory once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from kernelevolve.problems import leaves
from kernelevolve.problems.check import Clock, Sample
from kernelevolve.problems.module import seed_all

_SELECT = {"embedding", "gather", "index", "index_select", "take", "_unsafe_index"}
_BAGS = {"_embedding_bag", "_embedding_bag_forward_only"}
_SHAPE_ONLY = {"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones",
               "new_empty", "new_full", "_shape_as_tensor"}
PROBES, FEW_PROBES, MANY_PROBES = 16, 4, 128
"""Elements changed per tensor: few for those below 1 % of the bytes, many where some of the first had no effect."""
PROBED_BYTES = 2**28


def flops(sample: Sample) -> int:
    """Operations of one call as torch's counter knows them: matrix products, convolutions, attention."""
    with FlopCounterMode(display=False) as counter:
        sample.model(*sample.inputs)
    return int(counter.get_total_flops())


def bytes_min(sample: Sample, matters: frozenset[str], clock: Clock) -> int:
    """See the head of this file. `matters` names the inputs and parameters whose replacement changed the answer."""
    tensors = {f"input{i}": t for i, t in enumerate(sample.inputs) if isinstance(t, torch.Tensor)}
    buffers = {name for name, _ in sample.model.named_buffers()}
    tensors |= {name: t for name, t in sample.state.items() if name not in tensors}
    tensors = {name: t for name, t in tensors.items() if t.numel() and (name in matters or name in buffers)}
    with _ReadTrace(tensors) as trace:
        sample.model(*sample.inputs)
    read = {name: (trace.mask[name].nonzero().flatten(), t) for name, t in tensors.items()}
    total = sum(at.numel() * t.element_size() for at, t in read.values())
    counted = sample.output_bytes
    # Large or slow references are limited by arithmetic or take minutes to probe: there the marks alone must do.
    probe = total <= PROBED_BYTES and sample.call_s < 0.5
    end = time.monotonic() + clock.left_s() / 2
    with _one_thread():
        base = [t for _, t in leaves.flatten(sample.model(*sample.inputs))] if probe else []
        for at, t in read.values():
            share = 1.0
            if probe and at.numel():
                few = FEW_PROBES if at.numel() * t.element_size() * 100 < total else PROBES
                share = _share_with_effect(sample, base, t, at, few, end)
            counted += int(share * at.numel()) * t.element_size()
    return counted


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Many short calls: waking a second thread for each costs more than it brings on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _ReadTrace(TorchDispatchMode):
    """Marks, per tracked tensor, which elements of its storage are read by an operator that is no view."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self._name = {t.untyped_storage().data_ptr(): name for name, t in tensors.items()}
        self.mask = {name: torch.zeros(_storage_size(t), dtype=torch.bool) for name, t in tensors.items()}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if not is_view and name not in _SHAPE_ONLY:
            selects = name in _SELECT | _BAGS
            for t in tree_leaves((args, kwargs)):
                owner = self._name.get(t.untyped_storage().data_ptr()) if isinstance(t, torch.Tensor) else None
                if owner is None or not t.numel():
                    continue
                if selects and t is args[0]:
                    at = leaves.positions(t)
                    # The operator itself, run on the positions, says which of them it picks.
                    at = at[args[1].unique()] if name in _BAGS else func(at, *args[1:], **kwargs)
                    self.mask[owner][at.flatten()] = True
                else:
                    self.mask[owner].as_strided(t.shape, t.stride(), t.storage_offset()).fill_(True)
        return func(*args, **kwargs)


def _share_with_effect(sample: Sample, base: list[torch.Tensor], t: torch.Tensor, at: torch.Tensor, few: int,
                       end: float) -> float:
    """Share of the elements at the given storage positions that change the answer: 1.0, or a lower bound."""
    seed_all(2)
    flat = t.as_strided((_storage_size(t),), (1,), 0)
    chosen = at[torch.randperm(at.numel())[:MANY_PROBES]].tolist()
    hits: list[bool] = []
    for position in chosen:
        if (len(hits) == few and all(hits)) or time.monotonic() > end:
            break
        hits.append(_has_effect(sample, base, flat, position))
    if all(hits):
        return 1.0
    n, p, z = len(hits), sum(hits) / len(hits), 1.96
    low = (p + z * z / (2 * n) - z * ((p * (1 - p) + z * z / (4 * n)) / n) ** 0.5) / (1 + z * z / n)
    return max(0.0, low)


def _has_effect(sample: Sample, base: list[torch.Tensor], flat: torch.Tensor, position: int) -> bool:
    """Whether the answer changes, in any bit, when this element does."""
    old = flat[position].clone()
    try:
        for new in _other_values(flat, old):
            flat[position] = new
            try:
                output = leaves.flatten(sample.model(*sample.inputs))
            except Exception:  # an inconsistent length or index: the element was read
                return True
            if not leaves.same([leaf for _, leaf in output], base):
                return True
        return False
    finally:
        flat[position] = old


def _other_values(flat: torch.Tensor, old: torch.Tensor) -> list[torch.Tensor]:
    if flat.is_floating_point() or flat.is_complex():
        # Beyond every other element, in both directions: a maximum or a threshold notices one of them.
        step = 2 * flat.abs().max() + 1
        return [old + step, old - step]
    if flat.dtype is torch.bool:
        return [~old]
    # Other values of the same tensor: an index stays an index.
    others = flat[flat != old]
    return list(others[torch.randint(len(others), (3,))]) if len(others) else [old + 1]


def _storage_size(t: torch.Tensor) -> int:
    return t.untyped_storage().nbytes() // t.element_size()
