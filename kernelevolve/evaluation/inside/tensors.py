"""Trees of tensors across a process boundary: structure as JSON, bytes in shared memory.

A tree (nested tuples, lists and dicts) becomes a JSON skeleton with numbered leaves; each leaf becomes a
spec {"dtype", "shape", "stride", "start", "bytes", "offset"} that says where in the memory its storage starts,
how long that is, and the leaf's own offset in elements. Tensors that share a storage share it on the other side.
"""

from __future__ import annotations

from typing import Any

import torch

from kernelevolve.platforms.device import ALIGN, GUARD_BYTES


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
    """Specs of the leaves, one storage after another with guard bands between, and the bytes needed.

    Shared storages are laid out once.
    """
    specs, starts, total = [], {}, GUARD_BYTES
    for leaf in leaves:
        storage = leaf.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key not in starts or size == 0:
            starts[key] = total
            total += -(-size // ALIGN) * ALIGN + GUARD_BYTES
        specs.append({"dtype": dtype_name(leaf.dtype), "shape": list(leaf.shape), "stride": list(leaf.stride()),
                      "start": starts[key], "bytes": size, "offset": leaf.storage_offset()})
    return specs, total
