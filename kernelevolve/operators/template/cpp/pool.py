"""Maxima and means over windows, one or two dimensions, with what is pointwise around them.

Windows are separable: the lines of a window are first joined into one line buffer with its border (vectorised along the
width, no condition inside), then each output joins its few columns of that buffer.
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
    signature,
    write_stores,
    write_value,
)
from kernelevolve.operators.template.cpp.dialect import STORAGE
from kernelevolve.operators.template.expr import Expr, index
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template

PLANE, LINE, PIXEL = index(-3), index(-2), index(-1)
UNROLLED = 32
"""Columns of a window that are written out."""
LONGEST = 1 << 16
"""Elements of a line; a task keeps one line of windows, or two, on its stack."""


class Windows:
    """Sizes of a pooling as (planes, height, width); one dimension has height 1."""

    def __init__(self, graph: Graph, ops: Sequence[str]) -> None:
        self.anchor = Anchor(graph, ops, ("pool",))
        op = self.anchor.op
        given, out = graph.values[op.inputs[0]], graph.values[op.outputs[0]]
        spatial = len(op.attrs["kernel"])
        floats = ("float32", "float64")
        if spatial not in (1, 2) or out.dtype not in (*floats, "int32", "int64") or given.dtype != out.dtype:
            raise ValueError("windows of one or two dimensions over numbers of 4 or 8 bytes")
        if any(isinstance(n, str) for n in given.shape) or out.numel == 0 or given.numel == 0:
            raise ValueError("sizes must be known and not zero")
        self.op = str(op.attrs["op"])
        if self.op == "mean" and out.dtype not in floats:
            raise ValueError("means of integers")
        self.kind = STORAGE[out.dtype]
        lead, self.planes = out.shape[:-spatial], math.prod(int(n) for n in out.shape[:-spatial])
        self.height, self.width = _plane(given.shape[-spatial:])
        self.lines, self.pixels = _plane(out.shape[-spatial:])
        one = (1,) * spatial
        self.kernel_y, self.kernel_x = _plane(op.attrs["kernel"])
        self.stride_y, self.stride_x = _plane(op.attrs.get("stride") or op.attrs["kernel"])
        self.dilation_y, self.dilation_x = _plane(op.attrs.get("dilation", one))
        self.pad_y, self.pad_x = _plane(op.attrs.get("padding", (0,) * spatial), 0)
        self.whole = bool(op.attrs.get("count_include_pad", True)) or (self.pad_x == self.pad_y == 0)
        self.ranges = {-3: (0, self.planes - 1), -2: (0, self.lines - 1), -1: (0, self.pixels - 1)}
        self.given_ranges = {-3: (0, self.planes - 1), -2: (0, self.height - 1), -1: (0, self.width - 1)}
        outer = unravel(PLANE, lead) if lead else ()
        place: tuple[Expr, ...] = (*outer, *((PIXEL,) if spatial == 1 else (LINE, PIXEL)))
        self.position = tuple(simplify(p, self.ranges) for p in place)
        self.given = self.anchor.read(0, place, self.given_ranges)
        self.buffer = max(
            (self.pixels - 1) * self.stride_x + (self.kernel_x - 1) * self.dilation_x + 1, self.width + self.pad_x
        )

        if self.buffer > LONGEST:
            raise ValueError("lines too long for a thread's own buffer")

    @property
    def fits(self) -> bool:
        """Whether everything written is computed from the element at hand."""
        return plain(self.given) and self.anchor.fits(self.position, self.ranges)

    def joined(self, a: str, b: str) -> str:
        """Two elements of a window."""
        return f"k_max({a}, {b})" if self.op == "max" else f"{a} + {b}"

    @property
    def start(self) -> str:
        """The neutral element."""
        return f"k_lowest<{self.kind}>" if self.op == "max" else f"{self.kind}(0)"


def _plane(sizes: Any, missing: int = 1) -> tuple[int, int]:
    whole = [int(n) for n in sizes]
    return (missing, whole[0]) if len(whole) == 1 else (whole[0], whole[1])


class Pool(Template):
    """One pooling, whatever is pointwise around it."""

    name = "pool"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Maximum or mean over windows of one or two dimensions."""
        try:
            return Windows(graph, ops).fits
        except (ValueError, KeyError):
            return False

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """How much one task does, and how wide the second step's vectors are."""
        w = Windows(graph, ops)
        lines = tuple(n for n in (1, 2, 4, 8, 16, 64) if n <= w.lines)
        tasks = 4 * int(facts.get("cores", 2))
        default = max((n for n in lines if w.planes * -(-w.lines // n) >= tasks), default=1)
        found = [
            Parameter(
                "lines", default, lines, ("imbalance", "single_thread", "launch_overhead"), "output lines of one task"
            )
        ]
        if w.stride_x > 1:
            found.append(
                Parameter("columns", "strided", ("strided", "split"), ("gather", "not_vectorised"),
                          "read the line buffer with the stride, or sort its columns by remainder first"))  # fmt: skip
        return tuple(found)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """A line buffer per task."""
        w = Windows(graph, kernel.ops)
        root = Scope(CPP)
        block = min(int(kernel.params.get("lines", 1)), w.lines)
        split = kernel.params.get("columns") == "split" and w.stride_x > 1
        line = Scope(CPP, root, {-3: "p", -2: "iy"})
        load = Scope(CPP, line, {-1: "x"})
        load.lines.append(f"row[x + {w.pad_x}] = {w.joined(f'row[x + {w.pad_x}]', write_value(load, w.given))};")
        rows = Scope(CPP, root, {-3: "p", -2: "y"})
        inner = Scope(CPP, rows, {-1: "x"})
        inner.lines += _window(w, split)
        write_stores(inner, w.anchor.stores(kernel.outputs, w.position, w.ranges), {w.anchor.op.outputs[0]: "c"})
        phase = -(-w.buffer // w.stride_x)
        buffers = f"{w.kind} row[{w.buffer}];"
        sort = ""
        if split:
            buffers = f"{w.kind} row[{phase * w.stride_x}], column[{w.stride_x}][{phase}];"
            copies = "\n".join(f"    column[{s}][x] = row[x * {w.stride_x} + {s}];" for s in range(w.stride_x))
            sort = f"#pragma omp simd\nfor (int64_t x = 0; x < {phase}; x++) {{\n{copies}\n}}"
        size = phase * w.stride_x if split else w.buffer
        code = f"""extern "C" void {kernel.name}(
    {signature(graph, kernel)}) {{
{indent(root.lines)}
    #pragma omp parallel for collapse(2) schedule(static)
    for (int64_t p = 0; p < {w.planes}; p++)
        for (int64_t first = 0; first < {w.lines}; first += {block}) {{
            alignas(64) {buffers}
            for (int64_t y = first; y < std::min<int64_t>(first + {block}, {w.lines}); y++) {{
                std::fill_n(row, {size}, {w.start});
                int64_t lines = 0;
                for (int64_t ky = 0; ky < {w.kernel_y}; ky++) {{
                    const int64_t iy = y * {w.stride_y} + ky * {w.dilation_y} - {w.pad_y};
                    if (iy < 0 || iy >= {w.height}) continue;
                    lines++;
{indent(line.lines, 5)}
                    #pragma omp simd
                    for (int64_t x = 0; x < {min(w.width, w.buffer - w.pad_x)}; x++) {{
{indent(load.lines, 6)}
                    }}
                }}
{indent(sort, 4)}
{indent(rows.lines, 4)}
                #pragma omp simd
                for (int64_t x = 0; x < {w.pixels}; x++) {{
{indent(inner.lines, 5)}
                }}
            }}
        }}
}}"""
        note = f"{w.op} over windows {w.kernel_y} x {w.kernel_x}, lines first, then columns; {block} line(s) a task"
        return KernelSource(code, arguments(kernel), notes=(note,))


def _window(w: Windows, split: bool) -> list[str]:
    """Statements that join the columns of a window into `c`."""

    def column(k: int) -> str:
        at = k * w.dilation_x
        if split:
            return f"column[{at % w.stride_x}][x + {at // w.stride_x}]"
        return f"row[x * {w.stride_x} + {at}]" if w.stride_x > 1 else f"row[x + {at}]"

    if w.kernel_x <= UNROLLED:
        lines = [f"{w.kind} c = {column(0)};", *(f"c = {w.joined('c', column(k))};" for k in range(1, w.kernel_x))]
    else:
        step = w.joined("c", f"row[x * {w.stride_x} + kx * {w.dilation_x}]")
        lines = [f"{w.kind} c = {w.start};", f"for (int64_t kx = 0; kx < {w.kernel_x}; kx++) c = {step};"]
    if w.op == "mean" and w.whole:
        lines.append(f"c = c / {w.kind}({w.kernel_y * w.kernel_x});")
    elif w.op == "mean":
        lines += [
            f"const int32_t start = int32_t(x) * {w.stride_x} - {w.pad_x};",
            f"const int32_t width = std::min(start + {w.kernel_x}, {w.width}) - std::max(start, 0);",
            f"c = c / {w.kind}(int32_t(lines) * width);",
        ]
    return lines
