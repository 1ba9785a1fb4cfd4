"""One reduction per segment of rows: embedding bags, ragged rows. The gather of the rows is usually fused.

A bag's sum stays in registers (or in the first cache) while its rows are read once, far ahead of their use when their
numbers are known, because nothing else hides the latency of a random row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template.affine import simplify, unravel
from kernelevolve.operators.template.cpp.anchor import (
    CPP,
    Anchor,
    arguments,
    indent,
    plain,
    pointer,
    signature,
    write_stores,
    write_value,
)
from kernelevolve.operators.template.cpp.dialect import STORAGE
from kernelevolve.operators.template.expr import Expr, const, index, substitute, walk
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template

BAG, ENTRY, COLUMN = index(-3), index(-2), index(-1)
JOIN = {
    "sum": "{0} + {1}",
    "mean": "{0} + {1}",
    "max": "k_max({0}, {1})",
    "min": "k_min({0}, {1})",
    "prod": "{0} * {1}",
}
START = {"sum": "0", "mean": "0", "prod": "1", "max": "k_lowest<{t}>", "min": "k_highest<{t}>"}


class Bags:
    """Segments as (bags, entries, columns). The last segment ends with the values unless the offsets say so."""

    def __init__(self, graph: Graph, ops: Sequence[str]) -> None:
        self.anchor = Anchor(graph, ops, ("segment",))
        op = self.anchor.op
        values, offsets, out = (graph.values[n] for n in (*op.inputs[:2], op.outputs[0]))
        self.op = str(op.attrs["op"])
        if (
            values.dtype not in ("float32", "float64", "int64", "int32")
            or self.op not in JOIN
            or values.dtype != out.dtype
        ):
            raise ValueError("reductions of numbers of 4 or 8 bytes")
        if any(isinstance(n, str) for n in (*values.shape, *offsets.shape)) or out.numel in (0, None):
            raise ValueError("sizes must be known and not zero")
        self.kind = STORAGE[out.dtype]
        self.entries, self.bags = int(values.shape[0]), int(out.shape[0])
        tail = [int(n) for n in values.shape[1:]]
        self.columns = math.prod(tail)
        self.closed = int(offsets.shape[0]) == self.bags + 1
        self.ranges = {-3: (0, self.bags - 1), -2: (0, self.entries - 1), -1: (0, self.columns - 1)}
        after = unravel(COLUMN, tail) if tail else ()
        self.position = tuple(simplify(p, self.ranges) for p in (BAG, *after))
        self.value = self.anchor.read(0, (ENTRY, *after), self.ranges)
        self.start = self.anchor.read(1, (BAG,), self.ranges)
        following = Expr("add", (BAG, const(1, "int64")), "int64")
        self.end = self.anchor.read(1, (following,), {-3: (0, self.bags)})

    @property
    def fits(self) -> bool:
        """Whether everything written is computed from the element at hand."""
        return all(map(plain, (self.value, self.start))) and self.anchor.fits(self.position, self.ranges)

    def gathered(self) -> tuple[tuple[str, Expr], ...]:
        """Tables whose place depends on data: name and flat offset."""
        return tuple(
            (e.value, e.args[0]) for e in walk(self.value)
            if e.op == "element" and any(n.op == "element" for n in walk(e.args[0]))
        )  # fmt: skip


class Segment(Template):
    """One reduction per segment, whatever is pointwise around it."""

    name = "segment"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Segments of rows given by offsets."""
        try:
            return Bags(graph, ops).fits
        except (ValueError, KeyError):
            return False

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """The columns of one pass and how far ahead rows are asked for."""
        bags = Bags(graph, ops)
        widths = tuple(n for n in (16, 32, 64, 128, 256, 512) if n < 2 * bags.columns) or (16,)
        found = [
            Parameter(
                "strip",
                min(widths[-1], 128),
                widths,
                ("spills", "gather", "cache_resident"),
                "columns summed in one pass",
            ),
            Parameter(
                "chunk", 16, (1, 4, 16, 64), ("imbalance", "launch_overhead"), "bags handed to a thread at a time"
            ),
        ]
        if bags.gathered():
            found.append(
                Parameter(
                    "ahead",
                    32,
                    (0, 4, 8, 16, 32, 64),
                    ("gather", "memory_bound"),
                    "entries between the request for a row and its use",
                )
            )
        return tuple(found)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """Bags in parallel, entries in order, columns in vectors."""
        bags = Bags(graph, kernel.ops)
        strip = min(int(kernel.params.get("strip", 64)), bags.columns)
        ahead = int(kernel.params.get("ahead", 0))
        root = Scope(CPP)
        bag = Scope(CPP, root, {-3: "s"})
        first = write_value(bag, bags.start)
        last = write_value(bag, bags.end)
        if not bags.closed:
            last = f"s + 1 < {bags.bags} ? {last} : {bags.entries}"
        entry = Scope(CPP, root, {-2: "i"})
        inner = Scope(CPP, entry, {-1: "j"})
        step = JOIN[bags.op].format("total[j - first]", write_value(inner, bags.value))
        inner.lines.append(f"total[j - first] = {step};")
        after = Scope(CPP, root, {-3: "s"})
        column = Scope(CPP, after, {-1: "j"})
        read = "total[j - first]"
        if bags.op == "mean":
            read = f"(count > 0 ? total[j - first] / {bags.kind}(count) : {bags.kind}(0))"
        elif bags.op in ("max", "min"):
            read = f"(count > 0 ? total[j - first] : {bags.kind}(0))"
        write_stores(
            column, bags.anchor.stores(kernel.outputs, bags.position, bags.ranges), {bags.anchor.op.outputs[0]: read}
        )
        start = START[bags.op].format(t=bags.kind)
        code = f"""extern "C" void {kernel.name}(
    {signature(graph, kernel)}) {{
{indent(root.lines)}
    #pragma omp parallel for collapse(2) schedule(static, {int(kernel.params.get("chunk", 16))})
    for (int64_t s = 0; s < {bags.bags}; s++)
        for (int64_t first = 0; first < {bags.columns}; first += {strip}) {{
            alignas(64) {bags.kind} total[{strip}];
            for (int64_t j = 0; j < {strip}; j++) total[j] = {start};
{indent(_bounds(bags, bag, first, last), 3)}
{indent(_loop(bags, entry, inner, strip, ahead), 3)}
{indent(after.lines, 3)}
            #pragma omp simd
            for (int64_t j = first; j < {_end(bags, strip)}; j++) {{
{indent(column.lines, 4)}
            }}
        }}
}}"""
        notes = [f"{bags.op} of {bags.bags} segments of {bags.entries} entries, {strip} columns at a time"]
        if bags.gathered() and ahead:
            notes.append(f"rows requested {ahead} entries ahead")
        return KernelSource(code, arguments(kernel), notes=tuple(notes))


def _bounds(bags: Bags, bag: Scope, first: str, last: str) -> list[str]:
    return [*bag.lines, f"const int64_t begin = {first}, limit = {last}, count = limit - begin;"]


def _end(bags: Bags, strip: int) -> str:
    return f"first + {strip}" if bags.columns % strip == 0 else f"std::min<int64_t>(first + {strip}, {bags.columns})"


def _loop(bags: Bags, entry: Scope, inner: Scope, strip: int, ahead: int) -> str:
    return f"""for (int64_t i = begin; i < limit; i++) {{
{indent(_requests(bags, strip, ahead))}
{indent(entry.lines)}
    #pragma omp simd
    for (int64_t j = first; j < {_end(bags, strip)}; j++) {{
{indent(inner.lines, 2)}
    }}
}}"""


def _requests(bags: Bags, strip: int, ahead: int) -> list[str]:
    """Prefetch the row of a later entry, one request per cache line."""
    lines: list[str] = []
    if not ahead or not bags.gathered():
        return lines
    name, flat = bags.gathered()[0]
    later = {ENTRY: index(-5), COLUMN: index(-6)}
    scope = Scope(CPP, None, {-5: "later", -6: "first"})
    text = write_value(scope, substitute(flat, later.get))
    size = 8 if bags.kind in ("double", "int64_t") else 4
    lines += [f"const int64_t later = std::min<int64_t>(i + {ahead}, {bags.entries - 1});", *scope.lines]
    lines.append(f"const {STORAGE[bags.anchor.graph.values[name].dtype]}* row = {pointer(name)} + {text};")
    return lines + [f"__builtin_prefetch(row + {k});" for k in range(0, strip, 64 // size)][:16]
