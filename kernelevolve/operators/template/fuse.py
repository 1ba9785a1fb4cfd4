"""What a kernel reads: elements seen through views and through the pointwise operations computed in the same kernel.

`Region.read` answers with an expression of elements in memory (`element`) and values that the kernel has in
variables (`local`). Pointwise operations are substituted, so a value used twice is written once in the source and
computed where it is used; what should be kept in a variable or a buffer instead is named in `stops`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kernelevolve.operators.template.affine import (
    Range,
    identity,
    ranges_of,
    ravel,
    simplify,
    strides_of,
    unravel,
)
from kernelevolve.operators.template.expr import Expr, const, substitute
from kernelevolve.operators.template.graph import Graph, Op
from kernelevolve.operators.template.template import Kernel


class Region:
    """The operations computed by one kernel, for reading through them.

    Args:
        graph: The whole graph.
        inside: Names of operations computed here; others are read from memory (through views).
        stops: Names of values inside that are variables of the kernel: they are read as `local`.
    """

    def __init__(self, graph: Graph, inside: Collection[str], stops: Collection[str] = ()) -> None:
        self.graph, self.stops = graph, frozenset(stops)
        self.inside = frozenset(out for name in inside for out in graph.op(name).outputs)
        self._seen: dict[tuple[str, tuple[Expr, ...]], Expr] = {}

    def body(self, name: str, ranges: Mapping[int, Range] | None = None) -> Expr:
        """The value of pointwise `name` at the position of a loop nest over its own shape."""
        shape = self.graph.values[name].shape
        return simplify(self.read(name, identity(len(shape))), ranges or ranges_of(shape))

    def read(self, name: str, position: Sequence[Expr]) -> Expr:
        """The element of value `name` at `position`, one int64 expression per dimension of `name`.

        The answer is not simplified: call `affine.simplify` with the ranges of the loops.
        """
        key = (name, tuple(position))
        if key not in self._seen:
            self._seen[key] = self._read(name, tuple(position))
        return self._seen[key]

    def _read(self, name: str, position: tuple[Expr, ...]) -> Expr:
        value, op = self.graph.values[name], self.graph.maker(name)
        if name in self.stops:
            return Expr("local", position, value.dtype, name)
        if op is not None and op.kind == "view":
            base = self.graph.values[op.inputs[0]]
            flat = ravel(position, op.attrs["strides"], op.attrs["offset"])
            if not self._is_computed(base.name):
                return Expr("element", (flat,), base.dtype, base.name)
            return self.read(base.name, unravel(flat, base.shape))
        if op is not None and name in self.inside and op.kind == "pointwise":
            return self._substituted(op, position)
        return Expr("element", (ravel(position, strides_of(value.shape)),), value.dtype, name)

    def _is_computed(self, name: str) -> bool:
        """Whether reading `name` is anything else than reading memory."""
        op = self.graph.maker(name)
        return op is not None and (name in self.stops or op.kind == "view" or name in self.inside)

    def _substituted(self, op: Op, position: tuple[Expr, ...]) -> Expr:
        def change(node: Expr) -> Expr | None:
            if node.op == "index":
                return position[node.value] if -node.value <= len(position) else const(0, "int64")
            if node.op == "arg":
                shape = self.graph.values[node.value].shape
                own = position[len(position) - len(shape) :]
                zero = const(0, "int64")
                return self.read(node.value, [zero if n == 1 else p for n, p in zip(shape, own, strict=True)])
            if node.op == "load":
                return self.read(node.value, node.args)
            if node.op == "search":
                return Expr("search", node.args, node.dtype, base_of(self.graph, node.value), node.right)
            return None

        return substitute(op.attrs["expr"], change)


def base_of(graph: Graph, name: str) -> str:
    """The value in memory that a chain of views looks at."""
    op = graph.maker(name)
    while op is not None and op.kind == "view":
        name = op.inputs[0]
        op = graph.maker(name)
    return name


def is_reshape(graph: Graph, op: Op) -> bool:
    """Whether a view shows all elements of its input in the input's own order: free on a contiguous tensor."""
    out, base = graph.values[op.outputs[0]], graph.values[op.inputs[0]]
    if op.kind != "view" or op.attrs["offset"] or out.numel != base.numel:
        return False
    if out.numel is None and out.shape[0] != base.shape[0]:
        return False
    pairs = zip(out.shape, strides_of(out.shape), op.attrs["strides"], strict=True)
    return all(n == 1 or own == given for n, own, given in pairs)


def readers(graph: Graph, name: str) -> tuple[Op, ...]:
    """Operations other than views that read `name`, directly or through views."""
    found: dict[str, Op] = {}
    for op in graph.users(name):
        for reader in readers(graph, op.outputs[0]) if op.kind == "view" else (op,):
            found[reader.name] = reader
    return tuple(found.values())


def sources(graph: Graph, op: Op) -> tuple[str, ...]:
    """What an operation reads, with views replaced by what they look at."""
    return tuple(dict.fromkeys(base_of(graph, name) for name in op.inputs))


def returned(graph: Graph) -> frozenset[str]:
    """Values that must be in memory at the end: returned ones, or what a returned view looks at."""
    return frozenset(base_of(graph, name) for name in graph.output_names())


def kernels(graph: Graph, genome: Mapping[str, Any]) -> tuple[Kernel, ...]:
    """The kernels of a genome with what they read and must write, in an order in which they can run.

    An operation named by several kernels is computed in each of them and written, where it must be, by the first.
    """
    plans = genome["kernels"]
    inside = [frozenset(plan["ops"]) for plan in plans]
    kept = returned(graph)
    owner: dict[str, int] = {}
    for k, names in enumerate(inside):
        for name in names:
            owner.setdefault(name, k)
    result = []
    for k, plan in enumerate(plans):
        ops = tuple(op for op in graph.ops if op.name in inside[k])
        made = {out for op in ops for out in op.outputs}
        reads = dict.fromkeys(name for op in ops for name in sources(graph, op) if name not in made)
        writes = tuple(
            out for op in ops if owner[op.name] == k for out in op.outputs
            if out in kept or any(_needs_memory(graph, out, reader, inside) for reader in readers(graph, out))
        )  # fmt: skip
        result.append(
            Kernel(
                name=f"kernel_{k}_{plan['template']}", template=plan["template"], ops=tuple(op.name for op in ops),
                inputs=tuple(reads), outputs=writes, params=dict(plan.get("params", {})),
            )
        )  # fmt: skip
    return _ordered(result, graph)


def _needs_memory(graph: Graph, name: str, reader: Op, inside: Sequence[frozenset[str]]) -> bool:
    """Whether some place where `reader` is computed does not compute `name` itself."""
    maker = graph.op(name).name
    places = [names for names in inside if reader.name in names]
    return not places or any(maker not in names for names in places)


def _ordered(found: Sequence[Kernel], graph: Graph) -> tuple[Kernel, ...]:
    """Kernels after what they read; the given order where it is free.

    Raises ValueError when two kernels wait for each other.
    """
    writer = {out: k.name for k in found for out in k.outputs}
    after = {k.name: {writer[n] for n in _needs(graph, k.inputs) if n in writer and writer[n] != k.name} for k in found}
    left, result = list(found), []
    while left:
        ready = next((k for k in left if not after[k.name] & {o.name for o in left}), None)
        if ready is None:
            raise ValueError(f"kernels wait for each other: {', '.join(k.name for k in left)}")
        left.remove(ready)
        result.append(ready)
    return tuple(dataclasses.replace(k, name=f"kernel_{i}_{k.template}") for i, k in enumerate(result))


def _needs(graph: Graph, names: Sequence[str]) -> set[str]:
    """Values needed for `names`, those behind operations that stay in PyTorch included."""
    found: set[str] = set()
    stack = list(names)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            op = graph.maker(name)
            if op is not None and op.kind in ("opaque", "view"):
                stack.extend(op.inputs)
    return found
