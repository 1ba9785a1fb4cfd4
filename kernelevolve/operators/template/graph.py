"""The small graph between PyTorch and source: a dozen kinds of operation, language-neutral.

`capture` (in a worker) turns `forward` into ATen calls, `lower/` turns those into this graph, a genome says how
the graph is cut into kernels, and the emitters of a language write them. Values are contiguous tensors; whatever
is a view in PyTorch is an index map here and costs nothing until somebody reads through it.

Kinds and their attributes (inputs -> outputs; all shapes are those of the values):

| kind | attributes | meaning |
|---|---|---|
| pointwise | expr: Expr | a scalar expression per element of the output; reads by `arg` (broadcast) or `load` |
| reduce | op, dims | sum, prod, max, min, any, all, argmax, argmin over `dims` (non-negative, sorted), kept as size 1 |
| scan | op, dim, reverse, exclusive | cumulative sum, prod, max, min along `dim` |
| view | offset, strides | element (i, j, …) is element offset + i*s0 + j*s1 + … of the contiguous input |
| matmul | transpose_a, transpose_b | (…, M, K) x (…, K, N), batch dimensions broadcast |
| conv | stride, padding, dilation, groups, transposed, output_padding | input, weight [, bias]; 1 to 3 dimensions |
| pool | op, kernel, stride, padding, dilation, count_include_pad | max or mean over windows |
| topk | k, dim, largest, sorted | -> values, indices |
| sort | dim, descending, stable | -> values, indices |
| compact | | x (n, …), mask (n) -> rows of x where mask holds; the leading size is known only at run time |
| repeat | | values (n), lengths (n) -> each value `length` times; the size is known only at run time |
| segment | op | values, offsets -> one reduction per segment (embedding bags, ragged rows) |
| cat | dim | |
| opaque | call | stays in PyTorch: `call` is the Python expression, inputs as {0}, {1}, … |
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

Dim = int | str
"""A size, or the name of one known only at run time ("u0")."""

KINDS = (
    "pointwise", "reduce", "scan", "view", "matmul", "conv", "pool", "topk", "sort", "compact", "repeat", "segment",
    "cat", "opaque",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Value:
    """A contiguous tensor of the graph. `dtype` is torch's name without prefix."""

    name: str
    shape: tuple[Dim, ...]
    dtype: str

    @property
    def numel(self) -> int | None:
        """Number of elements; None when a size is known only at run time."""
        n = 1
        for d in self.shape:
            if isinstance(d, str):
                return None
            n *= d
        return n


@dataclasses.dataclass(frozen=True)
class Op:
    """One operation. It is named by its first output."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    origin: str = ""
    """The ATen operator it came from, for comments: "aten.layer_norm"."""

    @property
    def name(self) -> str:
        """Its first output."""
        return self.outputs[0]


@dataclasses.dataclass(frozen=True)
class Graph:
    """The function that `forward` computes."""

    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    """Names of forward's tensor arguments in order."""
    parameters: Mapping[str, str]
    """Value name -> attribute path under `self`, such as "norm.weight" (parameters, buffers, constants)."""
    ops: tuple[Op, ...]
    """In an order in which they can be computed."""
    outputs: Any
    """What forward returns: a value name, or nested: {"tuple": […]}, {"list": […]}, {"dict": {…}}, {"const": x}."""
    argument_names: tuple[str, ...] = ()
    """forward's own parameter names, without self."""
    access: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """How to reach an input: value name -> Python expression of forward's arguments ("x", "xs[0]")."""
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Value name -> nested numbers of a small tensor made inside forward."""
    strided: frozenset[str] = frozenset()
    """Inputs and parameters that are not contiguous as they come."""
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Arguments of forward that are no tensors -> the only value that this graph holds for."""
    calls: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Operation name -> the captured call it came from."""

    def op(self, name: str) -> Op:
        """The operation that defines a value; KeyError for an input or parameter."""
        return self._by_output[name]

    def maker(self, name: str) -> Op | None:
        """The operation that defines a value, None for an input or parameter."""
        return self._by_output.get(name)

    @functools.cached_property
    def _by_output(self) -> dict[str, Op]:
        return {out: op for op in self.ops for out in op.outputs}

    def users(self, name: str) -> tuple[Op, ...]:
        """Operations that read a value."""
        return tuple(op for op in self.ops if name in op.inputs)

    def output_names(self) -> tuple[str, ...]:
        """Names of all returned values, depth first, repeats kept."""
        return tuple(_leaves(self.outputs))


def _leaves(structure: Any) -> Iterator[str]:
    if isinstance(structure, str):
        yield structure
    elif isinstance(structure, Mapping):
        ((kind, items),) = structure.items()
        if kind == "const":
            return
        for item in items.values() if kind == "dict" else items:
            yield from _leaves(item)
