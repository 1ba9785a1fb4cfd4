"""How a family file names its problems and kernels: `FAMILY.problem(...)`, then `.add(...)` per algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernelevolve.testing.honest.rounding import widened

Function = Callable[..., Any]

_SOURCE = """import math

import torch
import torch.nn.functional as F

DTYPE = torch.{dtype}
{sizes}

class Model(torch.nn.Module):
    def forward(self, {names}):
        return {expression}


def get_inputs():
    inputs = [{inputs}]
    return [t.to(DTYPE) if torch.is_tensor(t) and t.is_floating_point() else t for t in inputs]


def get_init_inputs():
    return []
"""
NARROW = ("float16", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One way to compute one problem, with every rounding and every order of operations written out."""

    name: str
    """Unique: family/problem/algorithm, and "@variant" where shapes or the dtype are not the problem's first ones."""
    family: str
    task: str
    """The problem's name within the family."""
    algorithm: str
    variant: str
    """Empty for the problem's own shapes in float32."""
    problem: str
    """Source in KernelBench's format: Model, get_inputs, get_init_inputs; without parameters."""
    function: Function
    """Takes what `Model.forward` takes and answers what it answers."""
    honest: bool
    """Whether it must be accepted; if not, it must be refused in every evaluation."""
    why: str


@dataclasses.dataclass(frozen=True)
class Task:
    """A problem with its variants; kernels are added to it."""

    family: Family
    name: str
    sources: Mapping[str, tuple[str, str]]
    """Variant to (dtype, source)."""

    def add(self, algorithm: str, function: Function, why: str, *, honest: bool = True,
            dtypes: tuple[str, ...] = ("float32", "float64", *NARROW)) -> None:
        """Register a kernel for each variant whose dtype it covers.

        In a narrow dtype an honest kernel computes wide and rounds once, so it is wrapped accordingly; an imprecise
        one gets the tensors as they are.
        """
        for variant, (dtype, source) in self.sources.items():
            if dtype in dtypes:
                run = widened(function) if honest and dtype in NARROW else function
                name = f"{self.family.name}/{self.name}/{algorithm}" + (f"@{variant}" if variant else "")
                kernel = Kernel(name, self.family.name, self.name, algorithm, variant, source, run, honest, why)
                self.family.kernels.append(kernel)


class Family:
    """Kernels of one kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kernels: list[Kernel] = []

    def problem(self, name: str, expression: str, inputs: Mapping[str, str], sizes: Mapping[str, int], *,
                shapes: tuple[Mapping[str, int], ...] = (), dtypes: tuple[str, ...] = ("float32",)) -> Task:
        """A problem without parameters.

        Args:
            name: Unique within the family.
            expression: What forward returns, of the inputs' names and the sizes.
            inputs: Name to expression that makes the input, in the order of arguments.
            sizes: Module-level integers.
            shapes: More sizes, each a variant in the first dtype.
            dtypes: The first is the problem's own; each other one is a variant at its own sizes.
        """

        def source(dtype: str, sizes: Mapping[str, int]) -> str:
            return _SOURCE.format(dtype=dtype, sizes="".join(f"{k} = {v}\n" for k, v in sizes.items()),
                                  names=", ".join(inputs), expression=expression, inputs=", ".join(inputs.values()))

        sources = {"": (dtypes[0], source(dtypes[0], sizes))}
        for shape in shapes:
            label = ",".join(f"{k}={v}" for k, v in shape.items())
            sources[label] = (dtypes[0], source(dtypes[0], {**sizes, **shape}))
        for dtype in dtypes[1:]:
            sources[dtype] = (dtype, source(dtype, sizes))
        return Task(self, name, sources)


Tensor = torch.Tensor
