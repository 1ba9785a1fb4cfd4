"""An output as a flat list of tensors, depth first, and comparisons of such lists. For workers only."""

from __future__ import annotations

import zlib
from typing import Any

import torch

ATOL = RTOL = 1e-4
"""What counts as the same answer when a stub is tried: KernelBench's own tolerance for float32."""


class LeafTypeError(TypeError):
    """A leaf of the output is no dense CPU tensor; the message says which and what it is."""


def flatten(value: Any, where: str = "output") -> list[tuple[str, torch.Tensor]]:
    """Leaves with their places, such as ("output[0]['mean']", tensor), in the order of nesting."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.device.type != "cpu" or value.is_quantized:
            text = f"{where} is a {value.layout} tensor on {value.device}; expected a dense one on the CPU"
            raise LeafTypeError(text)
        return [(where, value.detach())]
    if isinstance(value, (tuple, list)):
        return [leaf for i, v in enumerate(value) for leaf in flatten(v, f"{where}[{i}]")]
    if isinstance(value, dict):
        return [leaf for k, v in value.items() for leaf in flatten(v, f"{where}[{k!r}]")]
    raise LeafTypeError(
        f"{where} is a {type(value).__name__} ({str(value)[:40]}); expected a tensor, or tuples, lists and dicts of "
        "tensors"
    )


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    """Whether two outputs agree bit for bit, shapes and dtypes included; NaN equals NaN."""
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))


def _same(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    return torch.equal(x, y) or bool(((x == y) | ((x != x) & (y != y))).all())


def close(a: list[torch.Tensor], b: list[torch.Tensor], *, tolerance: float = ATOL) -> bool:
    """Whether every leaf of `a` agrees with `b` at atol = rtol = `tolerance`; exact dtypes must be equal."""
    return len(a) == len(b) and all(_close(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _close(x: torch.Tensor, y: torch.Tensor, tolerance: float) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if not (x.is_floating_point() or x.is_complex()):
        return torch.equal(x, y)
    wide = torch.complex128 if x.is_complex() else torch.float64
    return torch.allclose(x.to(wide), y.to(wide), rtol=tolerance, atol=tolerance)


def relative_error(a: torch.Tensor, truth: torch.Tensor) -> float:
    """Norm of the difference over norm of the truth, in float64; for exact dtypes the number of differing elements."""
    if not (truth.is_floating_point() or truth.is_complex()):
        return float((a != truth).sum())
    wide = torch.complex128 if truth.is_complex() else torch.float64
    difference = float(torch.linalg.vector_norm(a.to(wide) - truth.to(wide)))
    norm = float(torch.linalg.vector_norm(truth.to(wide)))
    return difference / norm if norm else difference


def fingerprint(t: torch.Tensor) -> tuple[tuple[int, ...], int]:
    """Shape and checksum of the bytes: tells whether a tensor was changed without a copy of it."""
    dense = t.detach().resolve_conj().resolve_neg().contiguous()
    # A dimension of size 1 may keep any stride in a contiguous tensor; a view as bytes wants 1.
    flat = dense.as_strided((dense.numel(),), (1,), dense.storage_offset())
    return tuple(t.shape), zlib.crc32(flat.view(torch.uint8).numpy().data)


def positions(t: torch.Tensor) -> torch.Tensor:
    """Flat positions of the tensor's elements in its storage, int64, in the tensor's own shape."""
    at = torch.full(t.shape, int(t.storage_offset()), dtype=torch.int64)
    for d, (size, stride) in enumerate(zip(t.shape, t.stride(), strict=True)):
        at += (torch.arange(size) * stride).view([-1 if i == d else 1 for i in range(t.dim())])
    return at


def distinct_bytes(tensors: list[torch.Tensor]) -> int:
    """Bytes of the distinct storage elements that the tensors show: shared and expanded ones count once."""
    by_storage: dict[int, list[torch.Tensor]] = {}
    for t in tensors:
        if t.numel():
            by_storage.setdefault(t.untyped_storage().data_ptr(), []).append(t)
    total = 0
    for group in by_storage.values():
        if len(group) == 1 and group[0].is_contiguous():
            total += group[0].numel() * group[0].element_size()
            continue
        seen = torch.zeros(group[0].untyped_storage().nbytes(), dtype=torch.bool)
        for t in group:
            first_bytes = positions(t).flatten() * t.element_size()
            for byte in range(t.element_size()):
                seen[first_bytes + byte] = True
        total += int(seen.sum())
    return total
