"""Direct convolution in one and two dimensions with what is pointwise around it.

Padding is a copy with a border of zeros, made once per call, so that no inner loop has a condition. Two forms share the
register tile: vectors along the output's width (rows of the tile are output channels), or along output channels (rows
are pixels, weights are packed). With a stride, the first form stores the copy's columns by their remainder, so that
its loads stay contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template.affine import Range, simplify, unravel
from kernelevolve.operators.template.cpp.anchor import (
    CPP,
    Access,
    Anchor,
    arguments,
    as_access,
    indent,
    join,
    nest,
    plain,
    pointer,
    scratch_lines,
    signature,
    write_stores,
    write_value,
)
from kernelevolve.operators.template.cpp.tiles import BYTES, tile_function, vector_type
from kernelevolve.operators.template.expr import Expr, index
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template

IMAGE, CHANNEL, LINE, PIXEL = index(-4), index(-3), index(-2), index(-1)
TYPES = {"float32": "float", "float64": "double"}


class Convolution:
    """Sizes of a convolution as (images, channels, height, width); one dimension has height 1."""

    def __init__(self, graph: Graph, ops: Sequence[str]) -> None:
        self.anchor = Anchor(graph, ops, ("conv",))
        op = self.anchor.op
        given, weight, out = (graph.values[n] for n in (*op.inputs[:2], op.outputs[0]))
        spatial = len(out.shape) - 2
        if op.attrs.get("transposed") or spatial not in (1, 2) or out.dtype not in TYPES:
            raise ValueError("a transposed convolution, three dimensions, or no floats of 4 or 8 bytes")
        if any(isinstance(n, str) for n in given.shape) or out.numel == 0 or given.numel == 0:
            raise ValueError("sizes must be known and not zero")
        self.kind = TYPES[out.dtype]
        self.groups = int(op.attrs.get("groups", 1))
        self.images, self.channels_in = int(given.shape[0]), int(given.shape[1])
        self.channels_out = int(out.shape[1])
        self.height, self.width = _plane(given.shape[2:])
        self.lines, self.pixels = _plane(out.shape[2:])
        self.kernel_y, self.kernel_x = _plane(weight.shape[2:])
        self.stride_y, self.stride_x = _plane(op.attrs.get("stride", (1,) * spatial))
        self.dilation_y, self.dilation_x = _plane(op.attrs.get("dilation", (1,) * spatial))
        self.pad_y, self.pad_x = _plane(op.attrs.get("padding", (0,) * spatial), 0)
        self.group_in, self.group_out = self.channels_in // self.groups, self.channels_out // self.groups
        ahead = math.prod((self.kernel_x, self.kernel_y, self.stride_x, self.stride_y)) == 1
        ahead = ahead and self.pad_x == self.pad_y == 0
        planes = (out.shape[2:], given.shape[2:])
        if ahead and spatial == 2:  # one long line of pixels
            self.height, self.width = 1, self.height * self.width
            self.lines, self.pixels = 1, self.lines * self.pixels
        self.ranges = self._ranges(self.channels_out, self.lines, self.pixels)
        places = []
        for plane in planes:
            tail: tuple[Expr, ...] = (PIXEL,) if spatial == 1 else (LINE, PIXEL)
            if ahead and spatial == 2:
                tail = unravel(PIXEL, plane)
            places.append((IMAGE, CHANNEL, *tail))
        self.position = tuple(simplify(p, self.ranges) for p in places[0])
        self.given_ranges = self._ranges(self.channels_in, self.height, self.width)
        self.given = self.anchor.read(0, places[1], self.given_ranges)
        self.weight = self._weight(spatial)
        self.bias = self.anchor.read(2, (CHANNEL,), self.ranges) if len(op.inputs) > 2 else None

    def _ranges(self, channels: int, lines: int, pixels: int) -> dict[int, Range]:
        return {-4: (0, self.images - 1), -3: (0, channels - 1), -2: (0, lines - 1), -1: (0, pixels - 1)}

    def _weight(self, spatial: int) -> Access | None:
        """Where the weights are: output channel -3, input channel -4, tap -2, -1."""
        ranges = {
            -3: (0, self.channels_out - 1),
            -4: (0, self.group_in - 1),
            -2: (0, self.kernel_y - 1),
            -1: (0, self.kernel_x - 1),
        }
        place = (CHANNEL, IMAGE, *((PIXEL,) if spatial == 1 else (LINE, PIXEL)))
        return as_access(self.anchor.read(1, place, ranges), ranges)

    @property
    def fits(self) -> bool:
        """Whether everything written is computed from the element at hand."""
        read = [self.given, *([self.bias] if self.bias is not None else [])]
        return self.weight is not None and all(map(plain, read)) and self.anchor.fits(self.position, self.ranges)

    @property
    def unpadded(self) -> Access | None:
        """The input as it lies in memory, where no border and no stride asks for a copy."""
        found = as_access(self.given, self.given_ranges)
        if self.pad_x or self.pad_y or self.stride_x > 1 or found is None or (self.width > 1 and found.step(-1) != 1):
            return None
        return found


def _plane(sizes: Any, missing: int = 1) -> tuple[int, int]:
    whole = [int(n) for n in sizes]
    return (missing, whole[0]) if len(whole) == 1 else (whole[0], whole[1])


class Conv(Template):
    """One convolution, whatever is pointwise around it."""

    name = "conv"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Convolutions of one or two dimensions, not transposed."""
        try:
            return Convolution(graph, ops).fits
        except (ValueError, KeyError):
            return False

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """The direction of the vectors, then the tile."""
        c = Convolution(graph, ops)
        lanes = int(facts.get("vector_lanes_fp32", 8)) * 4 // BYTES[c.kind]
        wide = c.pixels >= lanes or c.pixels > c.group_out
        longest = c.pixels if wide else c.group_out
        crosswise = c.group_out if wide else c.pixels
        vectors = [v for v in (1, 2, 3, 4) if v <= -(-longest // lanes)] or [1]
        rows = [r for r in (1, 2, 4, 6, 7, 8, 12, 14) if r <= max(crosswise, 1)]
        best = min(vectors, key=lambda v: (-(-longest // (v * lanes)) * v, -v)) if len(vectors) > 1 else 1
        wanted = 24 // best
        forms = ("width", "channels")
        most = max((r for r in rows if r <= wanted), default=1)
        return (
            Parameter("form", forms[not wide], forms, ("not_vectorised", "narrow_vectors"),
                      "vectors along the output's width, or along output channels with packed weights"),
            Parameter("simd", lanes, tuple(n for n in (lanes, lanes // 2) if n > 1), ("narrow_vectors", "spills"),
                      "elements of a vector"),
            Parameter("rows", most, tuple(rows), ("spills", "reduction_chain"),
                      "rows of the register tile: output channels, or pixels"),
            Parameter("vectors", best, tuple(vectors), ("spills", "reduction_chain"), "vectors of the register tile"),
            Parameter("strips", 16, (1, 2, 4, 16, 64), ("imbalance", "single_thread", "cache_resident"),
                      "register tiles in one task"),
        )  # fmt: skip

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """The register tile, the padded copy, the convolution."""
        return _Writer(graph, kernel).source()


class _Writer:
    """Writes one kernel."""

    def __init__(self, graph: Graph, kernel: Kernel) -> None:
        self.graph, self.kernel, self.c = graph, kernel, Convolution(graph, kernel.ops)
        c, given = self.c, kernel.params
        self.across = given.get("form", "width") == "channels"
        self.lanes, self.vectors = int(given.get("simd", 16)), int(given.get("vectors", 1))
        self.tile = self.lanes * self.vectors
        self.rows = min(int(given.get("rows", 4)), c.pixels if self.across else c.group_out)
        self.task = self.rows * int(given.get("strips", 16))
        phases = 1 if self.across else c.stride_x
        reach = (c.kernel_x - 1) * c.dilation_x
        if self.across:
            self.phase_width = c.pixels * c.stride_x + reach
        else:
            self.phase_width = -(-c.pixels // self.tile) * self.tile + reach // phases
        self.phases, self.line = phases, self.phase_width * phases
        self.lines_in = c.height + 2 * c.pad_y
        self.direct = c.unpadded
        if self.direct is not None and not self.across and c.pixels < self.tile:
            self.direct = None
        self.root = Scope(CPP)
        self.scratch: dict[str, int] = {}

    def source(self) -> KernelSource:
        c, name = self.c, self.kernel.name
        assert c.weight is not None
        w, taps = c.weight, ""
        x = self.direct or Access("$padded", 0, {-4: c.channels_in * self.lines_in * self.line,
                                                 -3: self.lines_in * self.line, -2: self.line, -1: 1})  # fmt: skip
        step_y = c.dilation_y * x.step(-2)
        if self.across:
            depth = c.group_in * c.kernel_y * c.kernel_x
            loops: list[tuple[str, str, int, int | str]] = [
                ("ci", str(c.group_in), x.step(-3), c.kernel_y * c.kernel_x * self.tile),
                ("ky", str(c.kernel_y), step_y, c.kernel_x * self.tile),
                ("kx", str(c.kernel_x), c.dilation_x, self.tile),
            ]  # fmt: skip
            row_step = c.stride_x
            work = self._channels(x, w, depth)
        else:
            across: int | str = c.dilation_x
            if self.phases > 1:
                steps = [k * c.dilation_x for k in range(c.kernel_x)]
                table = ", ".join(str(s % self.phases * self.phase_width + s // self.phases) for s in steps)
                taps = f"static const int64_t {name}_taps[{c.kernel_x}] = {{{table}}};\n"
                across = f"{name}_taps[kx]"
            loops = [("ci", str(c.group_in), w.step(-4), x.step(-3)), ("ky", str(c.kernel_y), w.step(-2), step_y),
                     ("kx", str(c.kernel_x), w.step(-1), across)]  # fmt: skip
            row_step = w.step(-3)
            work = self._width(x, w)
        kept = [loop for loop in loops if loop[1] != "1"] or loops[:1]
        body = join("" if self.direct else self._padded(), work)
        scratch: dict[str, str] = {n: c.kind for n in ("padded", "packed") if n in self.scratch}
        code = f"""{vector_type(name, c.kind, self.lanes)}
{taps}
{tile_function(name, c.kind, lanes=self.lanes, vectors=self.vectors, row_step=row_step, loops=kept, width=self.tile)}

extern "C" void {name}(
    {signature(self.graph, self.kernel, scratch)}) {{
{indent([*scratch_lines(scratch), *self.root.lines])}
    #pragma omp parallel
    {{
{indent(body, 2)}
    }}
}}"""
        return KernelSource(code, arguments(self.kernel, scratch), scratch=self.scratch, notes=self._notes())

    def _notes(self) -> tuple[str, ...]:
        c = self.c
        rows, columns = ("pixels", "channels") if self.across else ("channels", "pixels")
        size = f"{c.kernel_y} x {c.kernel_x}, {c.channels_in} -> {c.channels_out} channels, {c.groups} group(s)"
        read = "read in place" if self.direct else "copied with a border of zeros, so no inner loop has a condition"
        return (
            f"convolution {size}: tile of {self.rows} {rows} x {self.tile} {columns} of {c.lines} x {c.pixels}",
            f"input {read}",
        )

    def _padded(self) -> str:
        """The input with its border, columns ordered by their remainder modulo the stride."""
        c = self.c
        self.scratch["padded"] = c.images * c.channels_in * self.lines_in * self.line * BYTES[c.kind]
        rows = Scope(CPP, self.root, {-4: "n", -3: "ch", -2: "y"})
        inner = Scope(CPP, rows, {-1: "x"})
        text = write_value(inner, c.given)
        last = min(c.width, self.line - c.pad_x) if self.phases == 1 else c.width
        place = (
            "x"
            if self.phases == 1
            else f"(x + {c.pad_x}) % {self.phases} * {self.phase_width} + (x + {c.pad_x}) / {self.phases}"
        )
        if self.phases == 1:
            copies = f"""#pragma omp simd
for (int64_t x = 0; x < {last}; x++) {{
{indent([*inner.lines, f"to[x + {c.pad_x}] = {text};"])}
}}"""
        else:
            inside = f"if ((x + {c.pad_x}) / {self.phases} < {self.phase_width}) to[{place}] = {text};"
            copies = f"for (int64_t x = 0; x < {last}; x++) {{\n{indent([*inner.lines, inside])}\n}}"
        loops: list[tuple[str, int | str, int]] = [("n", c.images, 1), ("ch", c.channels_in, 1)]
        area = self.lines_in * self.line
        return nest(
            "omp for",
            loops,
            f"""{c.kind}* __restrict area = padded + (n * {c.channels_in} + ch) * {area};
std::fill_n(area, {area}, {c.kind}(0));
for (int64_t y = 0; y < {c.height}; y++) {{
    {c.kind}* __restrict to = area + (y + {c.pad_y}) * {self.line};
{indent(rows.lines)}
{indent(copies)}
}}""",
        )

    def _given(self, x: Access, column: str) -> str:
        """Address of the first tap of output (n, group g, line y), at a column of the input."""
        c = self.c
        base = x.base[1:] if x.base.startswith("$") else pointer(x.base)
        terms = [(f"n * {x.step(-4)}", x.step(-4) and c.images > 1), (f"g * {c.group_in * x.step(-3)}", c.groups > 1),
                 (f"y * {c.stride_y * x.step(-2)}", c.lines > 1), (column, True)]  # fmt: skip
        return " + ".join([base, *([str(x.constant)] if x.constant else []), *(t for t, wanted in terms if wanted)])

    def _stores(self, rows: Scope, inner: Scope, read: str) -> None:
        """The epilogue of one element in `inner`; `rows` has what is the same for a line of the tile."""
        c = self.c
        bias = f" + {write_value(rows, c.bias)}" if c.bias is not None else ""
        stores = c.anchor.stores(self.kernel.outputs, c.position, c.ranges)
        write_stores(inner, stores, {c.anchor.op.outputs[0]: f"({read}{bias})" if bias else read})

    def _width(self, x: Access, w: Access) -> str:
        c, name, block = self.c, self.kernel.name, min(self.task, -(-self.c.group_out // self.rows) * self.rows)
        rows = Scope(CPP, self.root, {-4: "n", -3: "co", -2: "y"})
        inner = Scope(CPP, rows, {-1: "x"})
        self._stores(rows, inner, "c[x - x0]")
        start = f"std::min<int64_t>(x_first, {c.pixels - self.tile})" if self.direct else "x_first"
        weights = (
            f"{pointer(w.base)} + {w.constant} + co * {w.step(-3)}"
            if w.constant
            else f"{pointer(w.base)} + co * {w.step(-3)}"
        )
        call = f"({weights}, {self._given(x, 'x0')}, tile + (co - first) * {self.tile}, 0, true)"
        rest = c.group_out % self.rows
        loops: list[tuple[str, int | str, int]] = [
            ("n", c.images, 1), ("g", c.groups, 1), ("y", c.lines, 1), ("x_first", c.pixels, self.tile),
            ("o", c.group_out, block),
        ]  # fmt: skip
        return nest(
            "omp for",
            loops,
            f"""alignas(64) {c.kind} tile[{block * self.tile}];
const int64_t x_end = std::min<int64_t>(x_first + {self.tile}, {c.pixels}), x0 = {start};
const int64_t first = g * {c.group_out} + o, end = std::min<int64_t>(first + {block}, (g + 1) * {c.group_out});
int64_t co = first;
for (; co + {self.rows} <= end; co += {self.rows}) {name}_tile<{self.rows}>{call};
{f"if (co < end) {name}_tile<{rest}>{call};" if rest else ""}
for (co = first; co < end; co++) {{
    const {c.kind}* __restrict c = tile + (co - first) * {self.tile};
{indent(rows.lines)}
    #pragma omp simd
    for (int64_t x = x_first; x < x_end; x++) {{
{indent(inner.lines, 2)}
    }}
}}""",
        )

    def _channels(self, x: Access, w: Access, depth: int) -> str:
        c, name, t = self.c, self.kernel.name, self.tile
        panels = -(-c.group_out // t)
        block = min(self.task, -(-c.pixels // self.rows) * self.rows)
        self.scratch["packed"] = c.groups * panels * depth * t * BYTES[c.kind]
        rows = Scope(CPP, self.root, {-4: "n", -3: "co", -2: "y"})
        inner = Scope(CPP, rows, {-1: "x"})
        self._stores(rows, inner, f"tile[(x - x_first) * {t} + co - first]")
        taps = f"(ci * {c.kernel_y} + ky) * {c.kernel_x} + kx"
        at = f"{w.constant} + co * {w.step(-3)} + ci * {w.step(-4)} + ky * {w.step(-2)} + kx * {w.step(-1)}"
        source = f"{pointer(w.base)}[{at}]"
        packed = f"packed + (g * {panels} + p) * {depth * t}"
        call = f"({self._given(x, f'x * {c.stride_x}')}, {packed}, tile + (x - x_first) * {t}, 0, true)"
        rest = c.pixels % self.rows
        bounds = f"""const int64_t first = g * {c.group_out} + p * {t};
const int64_t end = std::min<int64_t>(first + {t}, (g + 1) * {c.group_out});"""
        packing: list[tuple[str, int | str, int]] = [("g", c.groups, 1), ("p", panels, 1)]
        pack = nest(
            "omp for",
            packing,
            f"""{bounds}
{c.kind}* __restrict to = {packed};
if (end - first < {t}) std::fill_n(to, {depth * t}, {c.kind}(0));
for (int64_t co = first; co < end; co++)
    for (int64_t ci = 0; ci < {c.group_in}; ci++)
        for (int64_t ky = 0; ky < {c.kernel_y}; ky++)
            for (int64_t kx = 0; kx < {c.kernel_x}; kx++)
                to[({taps}) * {t} + co - first] = {source};""",
        )
        loops: list[tuple[str, int | str, int]] = [
            ("n", c.images, 1), *packing, ("y", c.lines, 1), ("x_first", c.pixels, block),
        ]  # fmt: skip
        return join(
            pack,
            nest(
                "omp for",
                loops,
                f"""{bounds}
alignas(64) {c.kind} tile[{block * t}];
const int64_t x_end = std::min<int64_t>(x_first + {block}, {c.pixels});
int64_t x = x_first;
for (; x + {self.rows} <= x_end; x += {self.rows}) {name}_tile<{self.rows}>{call};
{f"if (x < x_end) {name}_tile<{rest}>{call};" if rest else ""}
for (int64_t co = first; co < end; co++) {{
{indent(rows.lines)}
    #pragma omp simd
    for (int64_t x = x_first; x < x_end; x++) {{
{indent(inner.lines, 2)}
    }}
}}""",
            ),
        )
