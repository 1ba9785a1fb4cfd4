"""A call's output on its way out: described, and copied into memory that the judge lent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelevolve.evaluation.inside.tensors import dtype_name, flatten
from kernelevolve.platforms.device import ALIGN, Memory

Range = tuple[int, int]


def hand_over(output: Any, memory: Memory, inputs: Sequence[Range],
              kept: Sequence[Range]) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Copy an output's leaves into `memory`, one behind another.

    `inputs` and `kept` are addresses that it must not share: of the call's inputs, and of outputs still held. Answers
    {"tree", "leaves": [{"type", "dtype", "shape", "device", "overlaps", "kept", "start"}]} and the plain leaves.
    Leaves of any other type than torch.Tensor are described, not copied.
    """
    leaves: list[Any] = []
    tree = flatten(output, leaves)
    described, place = [], 0
    for leaf in leaves:
        entry: dict[str, Any] = {"type": type(leaf).__name__}
        described.append(entry)
        # Looking at a subclass would run its code, and let it compute what it put off.
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
            continue
        entry["device"] = str(leaf.device)
        if leaf.layout != torch.strided or leaf.__dict__:
            entry["type"] = "Tensor with attributes" if leaf.__dict__ else str(leaf.layout)
            continue
        plain = leaf.detach()
        size = plain.numel() * plain.element_size()
        entry |= {"dtype": dtype_name(plain.dtype), "shape": list(plain.shape), "start": -1}
        entry["overlaps"] = overlaps(plain, inputs)
        entry["kept"] = overlaps(plain, kept)
        if place + size <= memory.size and plain.device.type == memory.bytes.device.type:
            if size:
                target = {"dtype": entry["dtype"], "shape": entry["shape"], "start": place, "bytes": size,
                          "offset": 0, "stride": list(torch.empty(plain.shape, device="meta").stride())}
                memory.tensors([target])[0].copy_(plain)
            entry["start"] = place
            place += -(-size // ALIGN) * ALIGN
    held = [leaf.detach() for leaf, entry in zip(leaves, described, strict=True) if "dtype" in entry]
    return {"tree": tree, "leaves": described}, held


def ranges(tensors: Sequence[torch.Tensor]) -> list[Range]:
    """Addresses of the first byte and past the last byte that each non-empty tensor may touch."""
    found = []
    for tensor in tensors:
        if tensor.numel():
            low = tensor.data_ptr()
            extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
            found.append((low, low + (extent + 1) * tensor.element_size()))
    return found


def overlaps(tensor: torch.Tensor, spans: Sequence[Range]) -> bool:
    """Whether a tensor may touch any of these addresses."""
    return any(low < b and a < high for low, high in ranges([tensor]) for a, b in spans)
