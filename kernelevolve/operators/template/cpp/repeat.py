"""Every value as often as its length says: lengths are added up in parts, then segments are written in parallel."""

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
    join,
    plain,
    signature,
    write_stores,
    write_value,
)
from kernelevolve.operators.template.cpp.dialect import STORAGE
from kernelevolve.operators.template.cpp.ragged import COLUMN, PARTS, ROW, SEGMENT, threads
from kernelevolve.operators.template.expr import Expr
from kernelevolve.operators.template.graph import Graph, Op
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template


class Repeat(Template):
    """Every value as often as its length says, with pointwise operations before and after."""

    name = "repeat"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """One repetition along the first dimension."""
        try:
            return _Repetition(graph, ops).fits
        except (ValueError, KeyError):
            return False

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """How many threads."""
        total = _Repetition(graph, ops).total
        return (threads(total if isinstance(total, int) else 0),)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """Lengths added up per part, then segments written in parallel."""
        return _Repetition(graph, kernel.ops).source(kernel)


class _Repetition:
    def __init__(self, graph: Graph, ops: Sequence[str]) -> None:
        self.graph, self.anchor = graph, Anchor(graph, ops, ("repeat",))
        op: Op = self.anchor.op
        values, lengths = (graph.values[n] for n in op.inputs[:2])
        if (
            len(lengths.shape) != 1
            or isinstance(lengths.shape[0], str)
            or any(isinstance(n, str) for n in values.shape)
        ):
            raise ValueError("sizes of the inputs must be known")
        self.segments = int(lengths.shape[0])
        tail = [int(n) for n in values.shape[1:]]
        self.columns, self.total = math.prod(tail), self.anchor.shape[0]
        last = self.total - 1 if isinstance(self.total, int) else 1 << 62
        self.ranges = {-3: (0, self.segments - 1), -2: (0, last), -1: (0, self.columns - 1)}
        after = unravel(COLUMN, tail) if tail else ()
        self.position = tuple(simplify(p, self.ranges) for p in (ROW, *after))
        here: Expr = SEGMENT
        self.value = self.anchor.read(0, (here, *after), self.ranges)
        self.length = self.anchor.read(1, (here,), self.ranges)

    @property
    def fits(self) -> bool:
        """Whether everything written is computed from the element at hand."""
        return plain(self.value) and plain(self.length) and self.anchor.fits(self.position, self.ranges)

    def source(self, kernel: Kernel) -> KernelSource:
        """The function, and the one that adds up the lengths where the total is not known."""
        many = kernel.params.get("threads", "one") == "many"
        root = Scope(CPP)
        count = Scope(CPP, root, {-3: "s"})
        add = f"count += {write_value(count, self.length)};"
        hoisted = list(root.lines)
        segment = Scope(CPP, root, {-3: "s"})
        row = Scope(CPP, segment, {-2: "p"})
        inner = Scope(CPP, row, {-1: "j"}) if self.columns > 1 else row
        if self.columns == 1:
            row.indices[-1] = "0"
        home = inner if self.columns > 1 else segment
        value, length = write_value(home, self.value), write_value(segment, self.length)
        if self.columns == 1:
            kind = STORAGE[self.graph.values[self.anchor.op.outputs[0]].dtype]
            segment.lines.append(f"const {kind} value = {value};")
            value = "value"
        write_stores(
            inner, self.anchor.stores(kernel.outputs, self.position, self.ranges), {self.anchor.op.outputs[0]: value}
        )
        body = indent(inner.lines)
        if self.columns > 1:
            body = indent(
                join(*row.lines, "#pragma omp simd", f"for (int64_t j = 0; j < {self.columns}; j++) {{\n{body}\n}}")
            )
        simd = "#pragma omp simd\n    " if self.columns == 1 else ""
        name, total = kernel.name, self.total
        first, last = ("begin", "end") if many else ("0", str(self.segments))
        loop = f"""for (int64_t s = {first}; s < {last}; s++) {{
{indent(segment.lines)}
    const int64_t length = std::min<int64_t>({length}, {total} - to);
    {simd}for (int64_t p = to; p < to + length; p++) {{
{indent(body)}
    }}
    to += length;
}}"""
        if many:
            work = f"""std::vector<int64_t> counts(omp_get_max_threads());
#pragma omp parallel
{{
{indent(PARTS.format(n=self.segments))}
    int64_t count = 0, to = 0;
    for (int64_t s = begin; s < end; s++) {{
{indent([*count.lines, add], 2)}
    }}
    counts[part] = count;
    #pragma omp barrier
    for (int64_t k = 0; k < part; k++) to += counts[k];
    to = std::min<int64_t>(to, {total});
{indent(loop)}
}}"""
        else:
            work = f"int64_t to = 0;\n{loop}"
        sized = isinstance(total, str)
        size = f", int64_t {total}" if sized else ""
        code = f"""extern "C" void {name}(
    {signature(self.graph, kernel)}{size}) {{
{indent(root.lines)}
{indent(work)}
}}"""
        counter = f"""extern "C" int64_t {name}_count(
    {signature(self.graph, kernel, outputs=False)}) {{
{indent(hoisted)}
    int64_t count = 0;
    for (int64_t s = 0; s < {self.segments}; s++) {{
{indent([*count.lines, add], 2)}
    }}
    return count;
}}

"""
        how = "in parts whose starts are counted first" if many else "in order"
        note = f"{self.segments} values repeated by their lengths, {how}"
        return KernelSource(
            code, (*arguments(kernel), *([f"size:{total}"] if sized else [])), runtime_size=str(total) if sized else "",
            counter=counter if sized else "", notes=(note,),
        )  # fmt: skip
