"""Around a call's output: poison where it will be allocated, and bands beside it that must stay as they are."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import torch

from kernelevolve.platforms.device import GUARD, Memory

_BAND = 4096
"""Bytes looked at before and behind an output."""
_SLACK = {"cpu": 192}
"""What a device's allocator needs beside a block that it gives out again, for its own notes and for alignment."""
_GAP = 1024
"""Neighbours are at most this far apart."""
_LARGE = 4 * 2**20
"""A larger output has smaller neighbours, of this size: allocators keep small and large blocks apart."""
_ASKED = 64 * 2**20
_TRIES = 64
"""Blocks are asked for until three are neighbours, at most so many and so many bytes; they are never written to."""


class Guards:
    """A block of each output's size is filled with 0xFF (NaN in every float type) and freed, between two kept ones.

    The allocator hands such a block out again, so an output that is not written shows, and so does, where the three
    are neighbours, one that is written beyond its ends.
    """

    def __init__(self, sizes: Sequence[int], device: str) -> None:
        self._bands: list[tuple[int, str, torch.Tensor]] = []
        self._kept: list[torch.Tensor] = []
        """Blocks that fill other holes, so that the output comes to lie in the one that is prepared."""
        holes = []
        for number, size in enumerate(sizes):
            with contextlib.suppress(RuntimeError, MemoryError):
                if size:
                    holes.append(self._hole(number, size, device))
        del holes

    def _hole(self, number: int, size: int, device: str) -> torch.Tensor:
        if size < _BAND:  # lists of small free blocks answer in an order of their own
            return _block(size, device).fill_(0xFF)
        own = size + _SLACK.get(device, 0)
        found: list[torch.Tensor] = []
        if own > _LARGE:
            for _ in range(3):
                found += [_block(n, device) for n in (_LARGE, own, _LARGE)]
                if _near(found[-3:]) or own > _ASKED:
                    break
        else:
            for _ in range(max(3, min(_TRIES, _ASKED // own))):
                found.append(_block(own, device))
                if len(found) >= 3 and _near(found[-3:]):
                    break
        low, hole, high = found[-3:]
        self._kept += [*found[:-2], high]
        if _near([low, hole, high]):
            self._bands += [(number, "before", low[-_BAND:].fill_(GUARD)),
                            (number, "behind", high[:_BAND].fill_(GUARD))]
        return hole.fill_(0xFF)

    def breach(self) -> str:
        """Where a band was written; empty when none was."""
        for number, end, band in self._bands:
            wrong = band != GUARD
            if bool(wrong.any()):
                return f"byte {int(wrong.nonzero()[0])} of {band.numel()} in the memory {end} output {number}"
        return ""


def drifted(outputs: Sequence[torch.Tensor], answer: dict[str, Any], memory: Memory) -> str:
    """Which output no longer holds what was handed over; empty when all do."""
    plain = [e for e in answer["leaves"] if "dtype" in e]
    for number, (leaf, entry) in enumerate(zip(outputs, plain, strict=False)):
        if entry["start"] < 0 or not leaf.numel():
            continue
        spec = {"dtype": entry["dtype"], "shape": entry["shape"], "start": entry["start"], "offset": 0,
                "bytes": leaf.numel() * leaf.element_size(),
                "stride": list(torch.empty(leaf.shape, device="meta").stride())}
        then = memory.tensors([spec])[0]
        if not (torch.equal(then, leaf) or torch.equal(then.nan_to_num(), leaf.nan_to_num())):
            return f"output {number} went on changing after the call had returned"
    return ""


def _block(size: int, device: str) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def _near(blocks: Sequence[torch.Tensor]) -> bool:
    return all(0 <= b.data_ptr() - a.data_ptr() - a.numel() <= _GAP for a, b in itertools.pairwise(blocks))
