"""Cumulative sums, products, maxima and minima along one dimension, with pointwise operations before and after.

A row is done in blocks that stay in the first cache: load (vectorised), prefix, epilogue (vectorised). Sums and
products of floats are kept in double, as PyTorch keeps them, so only the last rounding differs from the exact result.
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
    scratch_lines,
    signature,
    write_stores,
    write_value,
)
from kernelevolve.operators.template.cpp.dialect import STORAGE
from kernelevolve.operators.template.expr import Expr, const, index
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template

OUTER, STEP, INNER = index(-3), index(-2), index(-1)
JOIN = {"sum": "{0} + {1}", "prod": "{0} * {1}", "max": "k_max({0}, {1})", "min": "k_min({0}, {1})"}
START = {"sum": "0", "prod": "1", "max": "k_lowest<{t}>", "min": "k_highest<{t}>"}
LANES = 8


class Line:
    """The scan as (outer, length, inner), with the position of an element in these terms."""

    def __init__(self, graph: Graph, ops: Sequence[str]) -> None:
        self.anchor = Anchor(graph, ops, ("scan",))
        op, shape = self.anchor.op, self.anchor.shape
        dtype = graph.values[op.outputs[0]].dtype
        if (
            any(isinstance(n, str) for n in shape)
            or 0 in shape
            or dtype not in ("float32", "float64", "int64", "int32")
        ):
            raise ValueError("sizes must be known and not zero, and elements be numbers of 4 or 8 bytes")
        sizes = [int(n) for n in shape]
        d = int(op.attrs["dim"]) % len(sizes)
        self.op = str(op.attrs["op"])
        self.exclusive, reverse = bool(op.attrs.get("exclusive")), bool(op.attrs.get("reverse"))
        self.outer, self.length, self.inner = math.prod(sizes[:d]), sizes[d], math.prod(sizes[d + 1 :])
        self.kind = STORAGE[dtype]
        self.wide = "double" if dtype == "float32" and self.op in ("sum", "prod") else self.kind
        self.ranges = {-3: (0, self.outer - 1), -2: (0, self.length - 1), -1: (0, self.inner - 1)}
        along: Expr = STEP
        if reverse:
            along = Expr("sub", (const(self.length - 1, "int64"), STEP), "int64")
        before = unravel(OUTER, sizes[:d]) if d else ()
        after = unravel(INNER, sizes[d + 1 :]) if d + 1 < len(sizes) else ()
        self.position = tuple(simplify(p, self.ranges) for p in (*before, along, *after))
        self.value = self.anchor.read(0, self.position, self.ranges)

    @property
    def fits(self) -> bool:
        """Whether everything written is computed from the element at hand."""
        return plain(self.value) and self.anchor.fits(self.position, self.ranges)

    def joined(self, a: str, b: str) -> str:
        """One step of the scan."""
        return JOIN[self.op].format(a, b)

    @property
    def start(self) -> str:
        """The neutral element."""
        return START[self.op].format(t=self.wide)


class Scan(Template):
    """One scan with what is pointwise around it."""

    name = "scan"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """One scan, whatever is pointwise around it."""
        try:
            return Line(graph, ops).fits
        except (ValueError, KeyError):
            return False

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """How a row becomes parallel; for a dimension that is not the last, the width of a strip."""
        line = Line(graph, ops)
        if line.inner > 1:
            widths = tuple(n for n in (16, 32, 64, 128, 256, 512) if n < 2 * line.inner) or (16,)
            wanted = max(16, line.outer * line.inner // (2 * int(facts.get("cores", 2))))
            default = max((n for n in widths if n <= min(wanted, 256)), default=widths[0])
            return (
                Parameter(
                    "strip",
                    default,
                    widths,
                    ("not_vectorised", "single_thread", "cache_resident"),
                    "columns scanned side by side by one task",
                ),
            )
        found = [
            Parameter(
                "prefix",
                "lanes",
                ("lanes", "rows", "serial"),
                ("reduction_chain", "not_vectorised"),
                "prefix within a vector by shifts, several rows interleaved, or one element after the other",
            ),
            Parameter("rows", 1, (1, 2, 4, 8), ("reduction_chain", "imbalance"), "rows of one task, advanced together"),
            Parameter(
                "block",
                256,
                (64, 128, 256, 512, 1024),
                ("cache_resident", "launch_overhead"),
                "elements of a row between load and epilogue",
            ),
        ]
        if line.length >= 4096 and line.outer < 64:
            pieces = 1 if line.outer >= 2 * int(facts.get("cores", 2)) else 4
            found.append(
                Parameter(
                    "pieces",
                    pieces,
                    (1, 2, 4, 8),
                    ("single_thread", "imbalance"),
                    "parts of a row scanned in parallel after a pass over their totals",
                )
            )
        return tuple(found)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """A strip of columns, or blocks of rows."""
        line = Line(graph, kernel.ops)
        return _columns(graph, kernel, line) if line.inner > 1 else _rows(graph, kernel, line)


def _columns(graph: Graph, kernel: Kernel, line: Line) -> KernelSource:
    strip = min(int(kernel.params.get("strip", 64)), line.inner)
    root = Scope(CPP)
    task = Scope(CPP, root, {-3: "r"})
    rows = Scope(CPP, task, {-2: "s"})
    inner = Scope(CPP, rows, {-1: "i"})
    value = write_value(inner, line.value)
    update = f"const {line.wide} w = {line.joined('total[i - first]', line.wide + '(' + value + ')')};"
    found = f"const {line.kind} c = {line.kind}({'total[i - first]' if line.exclusive else 'w'});"
    inner.lines += [update, found, "total[i - first] = w;"]
    write_stores(
        inner, line.anchor.stores(kernel.outputs, line.position, line.ranges), {line.anchor.op.outputs[0]: "c"}
    )
    code = f"""extern "C" void {kernel.name}(
    {signature(graph, kernel)}) {{
{indent(root.lines)}
    #pragma omp parallel for collapse(2) schedule(static)
    for (int64_t r = 0; r < {line.outer}; r++)
        for (int64_t first = 0; first < {line.inner}; first += {strip}) {{
            const int64_t end = std::min<int64_t>(first + {strip}, {line.inner});
            {line.wide} total[{strip}];
            std::fill_n(total, {strip}, {line.start});
{indent(task.lines, 3)}
            for (int64_t s = 0; s < {line.length}; s++) {{
{indent(rows.lines, 4)}
                #pragma omp simd
                for (int64_t i = first; i < end; i++) {{
{indent(inner.lines, 5)}
                }}
            }}
        }}
}}"""
    note = f"scan of {line.length} steps over strips of {strip} columns, totals in {line.wide}"
    return KernelSource(code, arguments(kernel), notes=(note,))


def _rows(graph: Graph, kernel: Kernel, line: Line) -> KernelSource:
    rows = min(int(kernel.params.get("rows", 1)), line.outer)
    block = int(kernel.params.get("block", 256))
    pieces = int(kernel.params.get("pieces", 1))
    prefix = str(kernel.params.get("prefix", "serial"))
    length = -(-line.length // pieces)
    block = min(block, -(-length // LANES) * LANES)
    root = Scope(CPP)
    totals, scratch = "", {}
    if pieces > 1:
        totals = _totals(line, root, pieces, length)
        scratch = {"totals": line.outer * pieces * 8}
    load_row = Scope(CPP, root, {-3: "r"})
    load = Scope(CPP, load_row, {-2: "s"})
    load.lines.append(f"row[s - first + 1] = {line.wide}({write_value(load, line.value)});")
    store_row = Scope(CPP, root, {-3: "r"})
    store = Scope(CPP, store_row, {-2: "s"})
    shift = "" if line.exclusive else " + 1"
    store.lines.append(f"const {line.kind} c = {line.kind}(row[s - first{shift}]);")
    write_stores(
        store, line.anchor.stores(kernel.outputs, line.position, line.ranges), {line.anchor.op.outputs[0]: "c"}
    )
    begin = f"""for (int64_t i = 0; i < count; i++) part[i][0] = {line.start};"""
    if pieces > 1:
        begin = f"""for (int64_t i = 0; i < count; i++) {{
    part[i][0] = {line.start};
    for (int64_t l = 0; l < piece; l++) part[i][0] = {line.joined("part[i][0]", f"totals[(r0 + i) * {pieces} + l]")};
}}"""
    declared = dict.fromkeys(scratch, "double" if line.wide == "double" else line.wide)
    code = f"""{_lanes(kernel.name, line) if prefix == "lanes" else ""}
extern "C" void {kernel.name}(
    {signature(graph, kernel, declared)}) {{
{indent([*scratch_lines(declared), *root.lines])}
{totals}
    #pragma omp parallel for collapse(2) schedule(static)
    for (int64_t r0 = 0; r0 < {line.outer}; r0 += {rows})
        for (int64_t piece = 0; piece < {pieces}; piece++) {{
            alignas(64) {line.wide} part[{rows}][{block + LANES}];
            const int64_t count = std::min<int64_t>({rows}, {line.outer} - r0);
            const int64_t start = piece * {length}, limit = std::min<int64_t>(start + {length}, {line.length});
{indent(begin, 3)}
            for (int64_t first = start; first < limit; first += {block}) {{
                const int64_t end = std::min<int64_t>(first + {block}, limit), n = end - first;
                for (int64_t r = r0; r < r0 + count; r++) {{
                    {line.wide}* __restrict row = part[r - r0];
{indent(load_row.lines, 5)}
                    #pragma omp simd
                    for (int64_t s = first; s < end; s++) {{
{indent(load.lines, 6)}
                    }}
                }}
{indent(_prefix(kernel.name, line, prefix, rows), 4)}
                for (int64_t r = r0; r < r0 + count; r++) {{
                    const {line.wide}* __restrict row = part[r - r0];
{indent(store_row.lines, 5)}
                    #pragma omp simd
                    for (int64_t s = first; s < end; s++) {{
{indent(store.lines, 6)}
                    }}
                }}
                for (int64_t i = 0; i < count; i++) part[i][0] = part[i][n];
            }}
        }}
}}"""
    how = {"lanes": "prefix within vectors by shifts", "rows": f"{rows} rows interleaved", "serial": "serial prefix"}[
        prefix
    ]
    note = f"scan of {line.length} steps, blocks of {block}, {how}, totals in {line.wide}"
    more = (f"rows cut into {pieces} parts, whose totals are computed first",) if pieces > 1 else ()
    return KernelSource(code, arguments(kernel, scratch), scratch=scratch, notes=(note, *more))


def _prefix(name: str, line: Line, prefix: str, rows: int) -> str:
    """part[i][1..n] from elements to prefixes, part[i][0] being what came before."""
    if prefix == "lanes":
        return f"for (int64_t i = 0; i < count; i++) {name}_prefix(part[i], n);"
    step = line.joined("part[i][j]", "part[i][j + 1]")
    if prefix == "serial" or rows == 1:
        return f"for (int64_t i = 0; i < count; i++)\n    for (int64_t j = 0; j < n; j++) part[i][j + 1] = {step};"
    together = line.joined("total[i]", "part[i][j + 1]")
    return f"""if (count == {rows}) {{
    {line.wide} total[{rows}];
    for (int64_t i = 0; i < {rows}; i++) total[i] = part[i][0];
    for (int64_t j = 0; j < n; j++)
        #pragma GCC unroll {rows}
        for (int64_t i = 0; i < {rows}; i++) part[i][j + 1] = total[i] = {together};
}} else {{
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < n; j++) part[i][j + 1] = {step};
}}"""


def _lanes(name: str, line: Line) -> str:
    """Prefix of a block by log2(8) shifted additions per vector; only the running total is carried on."""
    size = {"double": 8, "int64_t": 8, "float": 4, "int32_t": 4}[line.wide]
    integer = "int64_t" if size == 8 else "int32_t"
    shifts = []
    for by in (1, 2, 4):
        mask = ", ".join(str(k if k < by else LANES + k - by) for k in range(LANES))
        moved = f"__builtin_shuffle(none, v, {name}_mask{{{mask}}})"
        shifts.append(f"        v = {_vector_join(line, 'v', moved)};")
    nl = "\n"
    return f"""typedef {line.wide} {name}_vec __attribute__((vector_size({size * LANES}), aligned({size}), may_alias));
typedef {integer} {name}_mask __attribute__((vector_size({size * LANES})));

static inline void {name}_prefix({line.wide}* __restrict row, int64_t n) {{
    const {name}_vec none = {line.start} - {name}_vec{{}};
    {line.wide} total = row[0];
    int64_t j = 1;
    for (; j + {LANES} <= n + 1; j += {LANES}) {{
        {name}_vec v = *({name}_vec*)(row + j);
{nl.join(shifts)}
        const {name}_vec carried = total - {name}_vec{{}};
        total = {line.joined("total", f"v[{LANES - 1}]")};
        *({name}_vec*)(row + j) = {_vector_join(line, "carried", "v")};
    }}
    for (; j <= n; j++) row[j] = total = {line.joined("total", "row[j]")};
}}
"""


def _vector_join(line: Line, a: str, b: str) -> str:
    if line.op in ("sum", "prod"):
        return line.joined(a, b)
    sign = ">" if line.op == "max" else "<"
    return f"({a} {sign} {b}) | ({a} != {a}) ? {a} : {b}"


def _totals(line: Line, root: Scope, pieces: int, length: int) -> str:
    """The first pass of a row that is cut into parts."""
    row = Scope(CPP, root, {-3: "r"})
    inner = Scope(CPP, row, {-2: "s"})
    value = f"{line.wide}({write_value(inner, line.value)})"
    simd = {"sum": "+:total", "prod": "*:total"}.get(line.op)
    pragma = f"#pragma omp simd reduction({simd})" if simd else ""
    return indent(f"""#pragma omp parallel for collapse(2) schedule(static)
for (int64_t r = 0; r < {line.outer}; r++)
    for (int64_t piece = 0; piece < {pieces}; piece++) {{
{indent(row.lines, 2)}
        {line.wide} total = {line.start};
        const int64_t end = std::min<int64_t>((piece + 1) * {length}, {line.length});
        {pragma}
        for (int64_t s = piece * {length}; s < end; s++) {{
{indent([*inner.lines, f"total = {line.joined('total', value)};"], 3)}
        }}
        totals[r * {pieces} + piece] = total;
    }}""")
