"""Rows that a mask keeps, and values repeated by lengths: outputs whose size depends on the data.

Both work in two phases on one cut of the input into parts: every thread counts what its part yields, the counts become
starts, and every thread writes its part. A kept mask that is itself repeated by lengths is never written: whole
segments are copied or passed over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template.affine import Range, simplify, unravel
from kernelevolve.operators.template.cpp.anchor import (
    CPP,
    arguments,
    indent,
    join,
    plain,
    pointer,
    signature,
    write_value,
)
from kernelevolve.operators.template.expr import index
from kernelevolve.operators.template.fuse import Region
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template

ROW, COLUMN, SEGMENT = index(-2), index(-1), index(-3)
def threads(items: int) -> Parameter:
    """The decision about threads; a barrier costs as much as counting some ten thousand entries."""
    return Parameter(
        "threads",
        "many" if items >= 1 << 16 else "one",
        ("many", "one"),
        ("launch_overhead", "single_thread", "imbalance"),
        "parts counted and written in parallel, or all by one thread without a barrier",
    )


PARTS = """\
const int64_t threads = omp_get_num_threads(), part = omp_get_thread_num();
const int64_t begin = {n} * part / threads, end = {n} * (part + 1) / threads;"""


class Kept:
    """Tensors compacted by one mask, which may be repeated by lengths on the way."""

    def __init__(self, graph: Graph, ops: Sequence[str]) -> None:
        self.graph = graph
        found = [graph.op(name) for name in ops if graph.op(name).kind != "view"]
        self.compacts = [op for op in found if op.kind == "compact"]
        masks = {op.inputs[1] for op in self.compacts}
        if len(masks) != 1 or any(op.kind not in ("compact", "repeat", "pointwise") for op in found):
            raise ValueError("expected tensors compacted by one mask")
        (mask,) = masks
        self.size = str(graph.values[self.compacts[0].outputs[0]].shape[0])
        if any(graph.values[op.outputs[0]].shape[0] != self.size for op in self.compacts):
            raise ValueError("compacted to different sizes")
        repeats = [op for op in found if op.kind == "repeat"]
        if repeats and ([op.outputs[0] for op in repeats] != [mask] or len(graph.values[mask].shape) != 1):
            raise ValueError("a repetition of anything else than the mask")
        self.repeat = repeats[0] if repeats else None
        shape = graph.values[mask].shape
        if len(shape) != 1 or isinstance(shape[0], str):
            raise ValueError("masks of one dimension and known size")
        self.rows = int(shape[0])
        region = Region(graph, [op.name for op in found if op.kind == "pointwise"])
        if self.repeat:
            self.segments = int(graph.values[self.repeat.inputs[1]].shape[0])
            self.ranges: dict[int, Range] = {-3: (0, self.segments - 1)}
            self.mask = simplify(region.read(self.repeat.inputs[0], (SEGMENT,)), self.ranges)
            self.lengths = simplify(region.read(self.repeat.inputs[1], (SEGMENT,)), self.ranges)
        else:
            self.ranges = {-2: (0, self.rows - 1)}
            self.mask = simplify(region.read(mask, (ROW,)), self.ranges)
        self.reads = []
        for op in self.compacts:
            tail = [int(n) for n in graph.values[op.inputs[0]].shape[1:]]
            columns = math.prod(tail)
            ranges = {-2: (0, self.rows - 1), -1: (0, columns - 1)}
            value = simplify(region.read(op.inputs[0], (ROW, *(unravel(COLUMN, tail) if tail else ()))), ranges)
            self.reads.append((op, columns, value))
        if not all(plain(e) for e in (self.mask, *(value for _, _, value in self.reads))):
            raise ValueError("a search inside")
        self._check_outputs(ops)

    def _check_outputs(self, ops: Sequence[str]) -> None:
        from kernelevolve.operators.template.fuse import readers, returned

        outs = {op.outputs[0] for op in self.compacts}
        for name in ops:
            op = self.graph.op(name)
            needed = op.outputs[0] in returned(self.graph) or any(
                r.name not in ops for r in readers(self.graph, op.outputs[0])
            )
            if op.kind != "view" and (needed != (op.outputs[0] in outs)):
                raise ValueError(f"{name} would have to be written too, or is read inside")


def within(root: Scope, text: str) -> str:
    """`text` with what its outermost scope computes once before it."""
    return f"{{\n{indent(root.lines)}\n{indent(text)}\n}}" if root.lines else text


class Compact(Template):
    """Rows of one or several tensors where a mask holds."""

    name = "compact"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Compactions by one mask, which may be computed, or repeated by lengths, in the same kernel."""
        try:
            return bool(Kept(graph, ops).compacts)
        except (ValueError, KeyError):
            return False

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """How many threads, and how a row or a segment is copied."""
        kept = Kept(graph, ops)
        if kept.repeat:
            copy = Parameter(
                "copy",
                "ahead",
                ("ahead", "loop"),
                ("not_vectorised", "reduction_chain"),
                "eight elements at a time, past the end of a segment where there is room, or one by one",
            )
        else:
            copy = Parameter(
                "copy",
                "always",
                ("always", "branch"),
                ("not_vectorised", "reduction_chain"),
                "copy every row and advance by the mask, or test the mask",
            )
        return (threads(kept.rows), copy)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """The counting function, then the writing one."""
        kept = Kept(graph, kernel.ops)
        work = _Segments(graph, kernel, kept) if kept.repeat else _Masked(graph, kernel, kept)
        return work.source()


class _Masked:
    """Compaction by a mask that is known row by row."""

    def __init__(self, graph: Graph, kernel: Kernel, kept: Kept) -> None:
        self.graph, self.kernel, self.kept = graph, kernel, kept
        self.many = kernel.params.get("threads", "one") == "many"
        self.items = kept.rows

    def count(self, begin: str, end: str) -> str:
        """Statements that add to `count`."""
        root = Scope(CPP)
        scope = Scope(CPP, root, {-2: "i"})
        text = write_value(scope, self.kept.mask)
        return within(
            root,
            f"""#pragma omp simd reduction(+:count)
for (int64_t i = {begin}; i < {end}; i++) {{
{indent([*scope.lines, f"count += ({text}) ? 1 : 0;"])}
}}""",
        )

    def write(self, begin: str, end: str) -> str:
        """Statements that write rows `begin` to `end` to places `to` up to `limit`."""
        root = Scope(CPP)
        scope = Scope(CPP, root, {-2: "i"})
        text = write_value(scope, self.kept.mask)
        copies = []
        for op, columns, value in self.kept.reads:
            if columns == 1:
                row = Scope(CPP, scope, {-1: "0"})
                copies += [*row.lines, f"{pointer(op.outputs[0])}[to] = {write_value(row, value)};"]
                continue
            inner = Scope(CPP, scope, {-1: "j"})
            put = f"{pointer(op.outputs[0])}[to * {columns} + j] = {write_value(inner, value)};"
            copies += [
                "#pragma omp simd",
                f"for (int64_t j = 0; j < {columns}; j++) {{",
                *(f"    {line}" for line in [*inner.lines, put]),
                "}",
            ]
        if self.kernel.params.get("copy") == "branch":
            body = f"if (!({text})) continue;\n{join(*copies)}\nto++;"
        else:
            body = f"const bool kept = {text};\n{join(*copies)}\nto += kept;  // a row that goes is overwritten"
        return within(
            root,
            f"""for (int64_t i = {begin}; i < {end} && to < limit; i++) {{
{indent(scope.lines)}
{indent(body)}
}}""",
        )

    def source(self) -> KernelSource:
        """Count and write, alone or in parts."""
        name, n = self.kernel.name, self.items
        outputs = self.kernel.outputs
        head = signature(self.graph, self.kernel, outputs=False)
        if not self.many:
            counter = f"""extern "C" int64_t {name}_count(
    {head}) {{
    int64_t count = 0;
{indent(self.count("0", str(n)))}
    return count;
}}
"""
            body = f"int64_t {self.cursors('0')};\nconst int64_t limit = {self.kept.size};\n{self.write('0', str(n))}"
            body = indent(body)
        else:
            counter = f"""extern "C" int64_t {name}_count(
    {head}) {{
    int64_t total = 0;
    #pragma omp parallel reduction(+:total)
    {{
{indent(PARTS.format(n=n), 2)}
        int64_t count = 0;
{indent(self.count("begin", "end"), 2)}
        total += count;
    }}
    return total;
}}
"""
            body = indent(f"""#pragma omp parallel
{{
{indent(PARTS.format(n=n))}
    int64_t {self.sums()};
{indent(self.count("begin", "end"))}
{indent(self.publish())}
    #pragma omp barrier
    int64_t {self.cursors("0")};
{indent(self.starts())}
    const int64_t limit = std::min(to + count, {self.kept.size});
{indent(self.write("begin", "end"))}
}}""")
            body = indent(self.shared()) + "\n" + body
        size = self.kept.size
        code = f"""extern "C" void {name}(
    {signature(self.graph, self.kernel)}, int64_t {size}) {{
{body}
}}"""
        return KernelSource(
            code, (*arguments(self.kernel), f"size:{size}"), runtime_size=size, counter=counter + "\n",
            notes=(self.note(len(outputs)),),
        )  # fmt: skip

    def sums(self) -> str:
        """What a part counts."""
        return "count = 0"

    def cursors(self, start: str) -> str:
        """Where a part begins."""
        return f"to = {start}"

    def shared(self) -> str:
        """Counts of all parts."""
        return "std::vector<int64_t> counts(omp_get_max_threads());"

    def publish(self) -> str:
        """Tell the others."""
        return "counts[part] = count;"

    def starts(self) -> str:
        """Add up the parts before."""
        return "for (int64_t k = 0; k < part; k++) to += counts[k];"

    def note(self, outputs: int) -> str:
        """For the header."""
        return f"{outputs} tensor(s) compacted by one mask of {self.items}, counted first, in two phases"


class _Segments(_Masked):
    """Compaction by a mask that holds for whole segments."""

    def __init__(self, graph: Graph, kernel: Kernel, kept: Kept) -> None:
        super().__init__(graph, kernel, kept)
        self.items = kept.segments

    def count(self, begin: str, end: str) -> str:
        root = Scope(CPP)
        scope = Scope(CPP, root, {-3: "s"})
        length, text = write_value(scope, self.kept.lengths), write_value(scope, self.kept.mask)
        reduction = "count, passed" if "passed" in self.sums() and begin == "begin" and self._writing else "count"
        passed = ["passed += length;"] if "passed" in reduction else []
        lines = [*scope.lines, f"const int64_t length = {length};", f"count += ({text}) ? length : 0;", *passed]
        return within(
            root,
            f"""#pragma omp simd reduction(+:{reduction})
for (int64_t s = {begin}; s < {end}; s++) {{
{indent(lines)}
}}""",
        )

    _writing = False

    def source(self) -> KernelSource:
        """As for rows; the writing function also counts what it passes over."""
        plain_source = super().source()
        self._writing = True
        return KernelSource(
            super().source().code, plain_source.arguments, runtime_size=plain_source.runtime_size,
            counter=plain_source.counter, notes=plain_source.notes,
        )  # fmt: skip

    def write(self, begin: str, end: str) -> str:
        root = Scope(CPP)
        scope = Scope(CPP, root, {-3: "s"})
        length, text = write_value(scope, self.kept.lengths), write_value(scope, self.kept.mask)
        copies = []
        for op, columns, value in self.kept.reads:
            row = Scope(CPP, root, {-2: "i"})
            inner = Scope(CPP, row, {-1: "j" if columns > 1 else "0"})
            place = f"(to + l) * {columns} + j" if columns > 1 else "to + l"
            put = f"{pointer(op.outputs[0])}[{place}] = {write_value(inner, value)};"
            if columns > 1:
                put = f"for (int64_t j = 0; j < {columns}; j++) {{\n{indent([*inner.lines, put])}\n}}"
                inner.lines.clear()
            step = join("const int64_t i = from + l;", *row.lines, *inner.lines, put)
            loop = f"for (int64_t l = 0; l < length; l++) {{\n{indent(step)}\n}}"
            if self.kernel.params.get("copy") == "ahead" and columns == 1:
                loop = f"""if (to + 8 <= limit && length <= 8 && from + 8 <= {self.kept.rows}) {{
    #pragma omp simd
    for (int64_t l = 0; l < 8; l++) {{  // what is too much is overwritten by the next segment
{indent(step, 2)}
    }}
}} else if (kept) {{
{indent(loop)}
}}"""
            else:
                loop = f"if (kept) {{\n{indent(loop)}\n}}"
            copies.append(loop)
        return within(
            root,
            f"""for (int64_t s = {begin}; s < {end}; s++) {{
{indent(scope.lines)}
    const bool kept = {text};
    const int64_t length = kept ? std::min<int64_t>({length}, limit - to) : {length};
{indent(join(*copies))}
    to += kept ? length : 0;
    from += length;
}}""",
        )

    def sums(self) -> str:
        return "count = 0, passed = 0"

    def cursors(self, start: str) -> str:
        return f"to = {start}, from = {start}"

    def shared(self) -> str:
        return "std::vector<int64_t> counts(omp_get_max_threads()), sizes(omp_get_max_threads());"

    def publish(self) -> str:
        return "counts[part] = count;\nsizes[part] = passed;"

    def starts(self) -> str:
        return "for (int64_t k = 0; k < part; k++) {\n    to += counts[k];\n    from += sizes[k];\n}"

    def note(self, outputs: int) -> str:
        return f"{outputs} tensor(s) compacted by whole segments ({self.items} lengths), no mask per element"
