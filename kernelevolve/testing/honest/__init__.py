"""Honest kernels, and imprecise ones: what `strict` must accept and what it must refuse.

Each kernel is a small function with its order of operations and its roundings written out, for a problem in
KernelBench's format. Lanes, tiles, splits and narrow formats are emulated exactly, so that the corpus needs no device
and says what other hardware would answer. `judging.py` runs them through the judge's own trials and rules.
"""

from __future__ import annotations

import importlib

from kernelevolve.testing.honest.registry import Kernel

FAMILIES = ("sums", "moments", "softmax", "norms", "matmul", "conv", "attention", "pointwise", "scans", "losses",
            "gathering")
"""One file each."""

__all__ = ["Kernel", "load"]


def load(families: tuple[str, ...] = FAMILIES) -> list[Kernel]:
    """Every kernel of the named families, honest ones and imprecise ones."""
    return [k for name in families for k in importlib.import_module(f"{__name__}.{name}").FAMILY.kernels]
