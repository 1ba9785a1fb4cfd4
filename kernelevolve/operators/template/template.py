"""What a family of kernels is: a template says which operations it can compute, its parameters, and how to write it.

A genome is plain JSON, so that it can be stored, compared and crossed:

    {"kernels": [{"ops": ["mean", "rsqrt", "mul"],       # names of the operations computed by this kernel
                  "template": "rows",                     # which family writes it
                  "params": {"simd": 16, "unroll": 2, "parallel": "outer", ...}}, ...],
     "options": {"threads": 0, "wide": true, ...}}        # decisions about the whole module
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from kernelevolve.operators.template.graph import Graph


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One decision of a template."""

    name: str
    default: Any
    choices: tuple[Any, ...]
    helps: tuple[str, ...] = ()
    """Causes (of a Diagnosis) that changing it addresses: "not_vectorised", "memory_bound", "imbalance", …"""
    why: str = ""
    """What the decision means, for the rationale: "rows per thread chunk"."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One kernel of a genome, resolved: its operations, what it reads and what it must write."""

    name: str
    """A C identifier: "kernel_0_rows"."""
    template: str
    ops: tuple[str, ...]
    inputs: tuple[str, ...]
    """Values it reads from memory."""
    outputs: tuple[str, ...]
    """Values it must write to memory: read by later kernels or returned."""
    params: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class KernelSource:
    """A written kernel."""

    code: str
    """The function, with its comment; uses only what the prelude defines."""
    arguments: tuple[str, ...]
    """Arguments of the C function in order: value names (pointers), "scratch:NAME" (pointers), "size:u0" (int64)."""
    prelude: tuple[str, ...] = ()
    """Names of prelude parts it needs (vector math functions and the like)."""
    scratch: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Bytes of scratch memory by name."""
    runtime_size: str = ""
    """Set when the function has to count first: name of the size ("u0") that the count defines; see `counter`."""
    counter: str = ""
    """Code of the counting function `NAME_count` with the same arguments less the outputs, returning the size."""
    notes: tuple[str, ...] = ()
    """What was decided and why, for the header comment."""


class Template(abc.ABC):
    """A family of kernels in one language. One file each, registered in the language folder's `__init__`."""

    name: ClassVar[str]
    language: ClassVar[str]

    @abc.abstractmethod
    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Whether one kernel of this family can compute exactly these operations together."""

    @abc.abstractmethod
    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """The decisions for these operations, defaults first thought of for this machine (`facts` of the platform)."""

    @abc.abstractmethod
    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """Write the kernel."""
