"""Trees of tensors across a process boundary: structure as JSON, bytes in shared memory.

A tree (nested tuples, lists and dicts) becomes a JSON skeleton with numbered leaves; each leaf becomes a
spec {"dtype", "shape", "stride", "start", "bytes", "offset"} that says where in the memory its storage starts,
how long that is, and the leaf's own offset in elements. Tensors that share a storage share it on the other side.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import torch

ALIGN = 64
"""Alignment of every storage in the shared memory, the same as torch's own allocator."""


def flatten(tree: Any, leaves: list[Any]) -> Any:
    """Skeleton of `tree`; its tensors are appended to `leaves` in depth-first order."""
    if isinstance(tree, torch.Tensor):
        leaves.append(tree)
        return {"tensor": len(leaves) - 1}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if isinstance(tree, (tuple, list)):
        return {"tuple" if isinstance(tree, tuple) else "list": [flatten(v, leaves) for v in tree]}
    if isinstance(tree, dict):
        return {"dict": [[k if isinstance(k, (str, int)) else str(k), flatten(v, leaves)] for k, v in tree.items()]}
    if isinstance(tree, torch.dtype):
        return {"dtype": dtype_name(tree)}
    return {"object": type(tree).__name__}


def unflatten(skeleton: Any, leaves: list[Any]) -> Any:
    """The tree again. Raises TypeError for what cannot be sent."""
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, value),) = skeleton.items()
    if kind == "tensor":
        return leaves[value]
    if kind in ("tuple", "list"):
        items = [unflatten(v, leaves) for v in value]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {k: unflatten(v, leaves) for k, v in value}
    if kind == "dtype":
        return getattr(torch, value)
    raise TypeError(f"an argument of type {value!r} cannot be sent; expected tensors, numbers, strings, lists or dicts")


def dtype_name(dtype: torch.dtype) -> str:
    """Torch's name without the prefix, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def layout(leaves: list[torch.Tensor]) -> tuple[list[dict[str, Any]], int]:
    """Specs of the leaves, one storage after another, and the bytes needed. Shared storages are laid out once."""
    specs, starts, total = [], {}, 0
    for leaf in leaves:
        storage = leaf.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key not in starts or size == 0:
            starts[key] = total
            total += -(-size // ALIGN) * ALIGN
        specs.append({"dtype": dtype_name(leaf.dtype), "shape": list(leaf.shape), "stride": list(leaf.stride()),
                      "start": starts[key], "bytes": size, "offset": leaf.storage_offset()})
    return specs, max(total, ALIGN)


class Memory:
    """Memory shared between processes (a memfd), seen as bytes or as tensors."""

    def __init__(self, fd: int, size: int) -> None:
        self.fd, self.size = fd, size
        self.map = mmap.mmap(fd, size)
        self.bytes = torch.frombuffer(self.map, dtype=torch.uint8)
        """All of it; uint8."""

    @classmethod
    def create(cls, size: int) -> Memory:
        """Fresh zeroed memory of `size` bytes."""
        fd = os.memfd_create("kernelevolve", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        return cls(fd, size)

    def write(self, leaves: list[torch.Tensor], specs: list[dict[str, Any]]) -> None:
        """Copy the leaves' whole storages in, as `layout` placed them."""
        for leaf, spec in zip(leaves, specs, strict=True):
            if spec["bytes"]:
                self.bytes[spec["start"] : spec["start"] + spec["bytes"]].copy_(raw(leaf))

    def tensors(self, specs: list[dict[str, Any]]) -> list[torch.Tensor]:
        """Tensors over this memory, without a copy. Equal specs give the same tensor, as one argument passed twice."""
        made: dict[str, torch.Tensor] = {}
        bases: dict[tuple[int, str], torch.Tensor] = {}
        found = []
        for spec in specs:
            key = str(spec)
            if key not in made or not spec["bytes"]:
                dtype = getattr(torch, spec["dtype"])
                place = (spec["start"], spec["dtype"])
                if place not in bases or not spec["bytes"]:
                    bases[place] = self._base(spec, dtype)
                made[key] = bases[place].as_strided(spec["shape"], spec["stride"], spec["offset"])
            found.append(made[key])
        return found

    def _base(self, spec: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
        count = spec["bytes"] // dtype.itemsize
        if count == 0:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self.map, dtype=dtype, count=count, offset=spec["start"])

    def close(self) -> None:
        """Close the descriptor; the mapping lives as long as its tensors."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def raw(leaf: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's whole storage; uint8, no copy."""
    return torch.empty(0, dtype=torch.uint8).set_(leaf.untyped_storage())  # type: ignore[call-overload]
