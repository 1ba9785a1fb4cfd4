"""Matrix products with what surrounds them: packed panels, a register tile, and the epilogue on the finished tile.

Method: the loop order of Goto and van de Geijn (Anatomy of High-Performance Matrix Multiplication, 2008), without
packing of the left operand, which is read by broadcast. Weights may change between calls, so packing is part of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template.cpp.anchor import (
    CPP,
    Access,
    arguments,
    bare,
    indent,
    join,
    nest,
    pointer,
    scratch_lines,
    signature,
    write_stores,
    write_value,
)
from kernelevolve.operators.template.cpp.product import STACK_BYTES, Product
from kernelevolve.operators.template.cpp.tiles import (
    BYTES,
    dot_function,
    mask_type,
    tile_function,
    transpose_function,
    vector_type,
)
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template


class MatMul(Template):
    """(…, M, K) x (…, K, N) with pointwise operations before and after."""

    name = "matmul"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """One product, whatever is pointwise around it."""
        try:
            return Product(graph, ops).fits
        except ValueError:
            return False

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """Sizes of the tile first; where packing and order do not matter they are left out."""
        p = Product(graph, ops)
        lanes = int(facts.get("vector_lanes_fp32", 8)) * 4 // BYTES[p.kind]
        gathers = p.gathers and not p.anchor.fits(p.position, p.ranges)
        dots = _dots(p) and not gathers
        found = []
        few = dots and p.rows <= 8
        if dots and p.rows <= 64:
            found.append(
                Parameter(
                    "form",
                    "dot" if few else "tiles",
                    ("tiles", "dot"),
                    ("memory_bound", "single_thread"),
                    "register tiles on packed panels, or dot products along K without packing",
                )
            )
        rows = [r for r in (1, 2, 4, 6, 8, 12, 14) if r <= max(p.rows, 1)]
        widest = -(-p.columns // lanes)
        vectors = [v for v in (1, 2, 3, 4) if v <= widest] or [1]
        best = 2 if widest < 3 or p.columns % (3 * lanes) else 3
        found += [
            Parameter(
                "simd",
                lanes,
                tuple(n for n in (lanes, lanes // 2) if n > 1),
                ("narrow_vectors", "spills"),
                "elements of a vector",
            ),
            Parameter(
                "rows",
                _near(rows, 8 if best == 3 else 12),
                tuple(rows),
                ("spills", "reduction_chain"),
                "rows of the register tile",
            ),
            Parameter(
                "vectors",
                _near(vectors, best),
                tuple(vectors),
                ("spills", "reduction_chain"),
                "vectors of columns of the register tile",
            ),
            Parameter(
                "strips",
                8,
                (1, 2, 4, 8, 16, 64),
                ("imbalance", "cache_resident", "memory_bound"),
                "register tiles below each other in one task",
            ),
        ]
        if p.depth >= 256:
            found.append(
                Parameter(
                    "depth",
                    0,
                    (0, 128, 256, 512),
                    ("memory_bound", "cache_resident"),
                    "summed elements before the next strip, 0 for all",
                )
            )
        if not gathers:
            packs = ["shared", "private"] + (["none"] if p.b is not None and p.b.step(-1) == 1 else [])
            default = "private" if p.batches > 1 else "none" if len(packs) == 3 and p.rows <= 16 else "shared"
            found.append(
                Parameter(
                    "pack",
                    default,
                    tuple(packs),
                    ("memory_bound", "cache_resident", "imbalance"),
                    "panels of the right operand copied once by all threads, by each task, or read in place",
                )
            )
            found.append(
                Parameter(
                    "order",
                    "columns",
                    ("columns", "rows"),
                    ("memory_bound", "cache_resident"),
                    "whether tasks go along columns or rows first",
                )
            )
        return tuple(found)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """The register tile as its own function, then the kernel."""
        return _Writer(graph, kernel).source()


def _dots(p: Product) -> bool:
    return all(x is not None and x.step(-4) == 1 for x in (p.a, p.b)) and p.depth >= 8


def _near(choices: Sequence[int], wanted: int) -> int:
    return min(choices, key=lambda n: abs(n - wanted))


class _Writer:
    """Writes one kernel."""

    def __init__(self, graph: Graph, kernel: Kernel) -> None:
        self.graph, self.kernel, self.p = graph, kernel, Product(graph, kernel.ops)
        p, given = self.p, kernel.params
        self.kind = p.kind
        self.lanes = int(given.get("simd", 16))
        self.vectors = int(given.get("vectors", 2))
        self.block = min(int(given.get("rows", 8)), p.rows)
        self.width = self.lanes * self.vectors
        self.panels = -(-p.columns // self.width)
        self.depth = int(given.get("depth", 0)) or p.depth
        self.gathers = not p.anchor.fits(p.position, p.ranges)
        self.dot = given.get("form", "tiles") == "dot" and _dots(p) and not self.gathers
        self.dots = 8 if self.block <= 2 else 4
        self.task_rows = min(int(given.get("strips", 8)), -(-p.rows // self.block)) * self.block
        self.pack = str(given.get("pack", "private"))
        in_place = p.b is not None and p.b.step(-1) == 1 and p.columns >= self.width
        if self.pack == "none" and not in_place:
            self.pack = "shared"
        if self.gathers or (self.pack == "private" and self.width * p.depth * BYTES[self.kind] > STACK_BYTES):
            self.pack = "private" if self.gathers else "shared"
        packed = not self.dot and self.pack != "none" and p.b is not None
        self.transposes = packed and p.b is not None and p.b.step(-1) != 1 and p.b.step(-4) == 1
        self.root = Scope(CPP)
        self.scratch: dict[str, int] = {}

    def source(self) -> KernelSource:
        p, name = self.p, self.kernel.name
        body = join(
            self._pack_left(), self._dot() if self.dot else self._gathering() if self.gathers else self._tiles()
        )
        unused = {n for n in ("packed", "left_copy") if n not in self.scratch}
        scratch = {n: self.kind for n in ("left_copy", "packed") if n not in unused}
        a = p.a or _copied(p)
        if self.dot:
            assert p.b is not None
            tile = dot_function(
                name, self.kind, lanes=self.lanes, columns=self.dots, depth=p.depth, row_step=a.step(-2),
                column_step=p.b.step(-1), width=32,
            )  # fmt: skip
        else:
            step = p.b.step(-4) if self.pack == "none" and p.b is not None else self.width
            tile = tile_function(name, self.kind, lanes=self.lanes, vectors=self.vectors, row_step=a.step(-2),
                                 loops=[("k", "depth", a.step(-4), step)], width=self._tile_width)  # fmt: skip
        if self.dot or self.transposes:
            tile = join(mask_type(name, self.kind, self.lanes), "", tile)
        if self.transposes:
            tile = f"{tile}\n\n{transpose_function(name, kind=self.kind, lanes=self.lanes)}"
        code = f"""{vector_type(name, self.kind, self.lanes)}
{tile}

extern "C" void {name}(
    {signature(self.graph, self.kernel, scratch)}) {{
{indent([*scratch_lines(scratch), *self.root.lines])}
    #pragma omp parallel
    {{
{indent(body, 2)}
    }}
}}"""
        return KernelSource(code, arguments(self.kernel, scratch), scratch=self.scratch, notes=self._notes())

    @property
    def _tile_width(self) -> int:
        return self.width * self.panels if self.gathers else self.width

    def _notes(self) -> tuple[str, ...]:
        p = self.p
        size = f"{p.batches} x ({p.rows} x {p.depth}) ({p.depth} x {p.columns})"
        if self.dot:
            return (f"{size}: few rows, so dot products along K, nothing packed",)
        packing = {"shared": "panels of the right operand packed once", "private": "each task packs its panel",
                   "none": "right operand read in place"}[self.pack]  # fmt: skip
        return (f"{size}: register tile {self.block} x {self.width}; {packing}; left operand read by broadcast",)

    def _pack_left(self) -> str:
        """The left operand computed into scratch when it is not simply in memory."""
        p = self.p
        if p.a is not None:
            return ""
        self.scratch["left_copy"] = p.batches * p.rows * p.depth * BYTES[self.kind]
        rows = Scope(CPP, self.root, {-3: "b", -2: "m"})
        inner = Scope(CPP, rows, {-4: "k"})
        text = write_value(inner, p.left)
        loops: list[tuple[str, int | str, int]] = [("b", p.batches, 1), ("m", p.rows, 1)]
        return nest(
            "omp for",
            loops,
            f"""{self.kind}* __restrict to = left_copy + (b * {p.rows} + m) * {p.depth};
{join(*rows.lines)}
#pragma omp simd
for (int64_t k = 0; k < {p.depth}; k++) {{
{indent([*inner.lines, f"to[k] = {text};"])}
}}""",
        )

    def _left(self, k: str) -> str:
        a = self.p.a or _copied(self.p)
        base = pointer(a.base) if self.p.a else "left_copy"
        return _address(
            base, a.constant, ("b", a.step(-3) if self.p.batches > 1 else 0), ("m", a.step(-2)), (k, a.step(-4))
        )

    def _pack_panel(self, to: str) -> str:
        """Copy (or compute) panel `p` of the right operand: {width} columns side by side, one row per k."""
        p = self.p
        clear = ""
        if p.columns % self.width:
            clear = f"if (n_end - n0 < {self.width}) std::fill_n(to, {p.depth * self.width}, {self.kind}(0));"
        head = join(f"{self.kind}* __restrict to = {to};", clear)
        if self.transposes:
            return join(head, self._transposed())
        outer = Scope(CPP, self.root, {-3: "b"})
        middle = Scope(CPP, outer, {-4: "k"})
        inner = Scope(CPP, middle, {-1: "n"})
        text = write_value(inner, p.right)
        loops = f"""for (int64_t k = 0; k < {p.depth}; k++) {{
{indent(middle.lines)}
    #pragma omp simd
    for (int64_t n = n0; n < n_end; n++) {{
{indent([*inner.lines, f"to[k * {self.width} + n - n0] = {text};"], 2)}
    }}
}}"""
        return join(head, *outer.lines, loops)

    def _transposed(self) -> str:
        """The panel of an operand whose rows are the product's columns: squares are turned in registers."""
        p, w, lanes = self.p, self.width, self.lanes
        assert p.b is not None
        step, batch = p.b.step(-1), ("b", p.b.step(-3) if p.batches > 1 else 0)
        place = _address(pointer(p.b.base), p.b.constant, batch, ("n", step), ("k", 1))
        square = f"{place}, {step}, to + k * {w} + n - n0, {w}"
        one = _address("", p.b.constant, batch, ("n", step), ("k", 1)).removeprefix(" + ")
        single = f"to[k * {w} + n - n0] = {pointer(p.b.base)}[{one}];"
        edge = one.replace(f"n * {step}", f"(n + i) * {step}")
        rest = ""
        if p.depth % lanes:
            several = f"to[k * {w} + n - n0 + i] = {pointer(p.b.base)}[{edge}];"
            rest = f"for (; k < {p.depth}; k++)\n    for (int64_t i = 0; i < {lanes}; i++) {several}"
        squares = join(f"for (; k + {lanes} <= {p.depth}; k += {lanes}) {self.kernel.name}_transpose({square});", rest)
        last = ""
        if p.columns % lanes:
            last = f"for (; n < n_end; n++)\n    for (int64_t k = 0; k < {p.depth}; k++) {single}"
        return f"""int64_t n = n0;
for (; n + {lanes} <= n_end; n += {lanes}) {{
    int64_t k = 0;
{indent(squares)}
}}
{last}"""

    def _strips(self, right: str, c: str) -> str:
        """All strips of a task, through the summed index."""
        p, rest = self.p, self.p.rows % self.block
        name, width = self.kernel.name, self._tile_width
        step = p.b.step(-4) if self.pack == "none" and p.b is not None else self.width
        call = f"({self._left('k')}, {right} + k * {step}, {c} + (m - m0) * {width}, depth, k == 0)"
        whole = f"({self._left('0')}, {right}, {c} + (m - m0) * {width}, {p.depth}, true)"
        lines = f"""int64_t m = m0;
for (; m + {self.block} <= m_end; m += {self.block}) {name}_tile<{self.block}>{call};"""
        if rest:
            lines += f"\nif (m < m_end) {name}_tile<{rest}>{call};"
        if self.depth >= p.depth:
            return lines.replace(call, whole)
        return f"""for (int64_t k = 0; k < {p.depth}; k += {self.depth}) {{
    const int64_t depth = std::min<int64_t>({self.depth}, {p.depth} - k);
{indent(lines)}
}}"""

    def _epilogue(self, width: int) -> str:
        """The finished tile's elements, row by row, through the epilogue into memory."""
        stores = self.p.anchor.stores(self.kernel.outputs, self.p.position, self.p.ranges)
        rows = Scope(CPP, self.root, {-3: "b", -2: "m"})
        inner = Scope(CPP, rows, {-1: "n"})
        write_stores(inner, stores, {self.p.anchor.op.outputs[0]: "c[n - n0]"})
        return f"""for (int64_t m = m0; m < m_end; m++) {{
    const {self.kind}* __restrict c = tile + (m - m0) * {width};
{indent(rows.lines)}
    #pragma omp simd
    for (int64_t n = n_first; n < n_end; n++) {{
{indent(inner.lines, 2)}
    }}
}}"""

    def _tiles(self) -> str:
        p, w = self.p, self.width
        blocks = -(-p.rows // self.task_rows)
        bounds = f"""const int64_t n_first = p * {w}, n_end = std::min<int64_t>(n_first + {w}, {p.columns});
const int64_t n0 = {f"std::min<int64_t>(n_first, {p.columns - w})" if self.pack == "none" else "n_first"};"""
        begin = f"""const int64_t m0 = block * {self.task_rows};
const int64_t m_end = std::min<int64_t>(m0 + {self.task_rows}, {p.rows});
alignas(64) {self.kind} tile[{self.task_rows * w}];"""
        depends = p.b is None or p.b.step(-3) != 0
        number = f"(b * {self.panels} + p)" if p.batches > 1 and depends else "p"
        packing = ""
        if self.pack == "none":
            assert p.b is not None
            right = _address(pointer(p.b.base), p.b.constant, ("b", p.b.step(-3) if p.batches > 1 else 0), ("n0", 1))
        elif self.pack == "private":
            right = "panel"
        else:
            right = f"packed + {number} * {p.depth * w}"
            packs = p.batches if p.batches > 1 and depends else 1
            self.scratch["packed"] = packs * self.panels * p.depth * w * BYTES[self.kind]
            copy = f"const int64_t n0 = p * {w}, n_end = std::min<int64_t>(n0 + {w}, {p.columns});"
            panels: list[tuple[str, int | str, int]] = [("b", packs, 1), ("p", self.panels, 1)]
            packing = nest("omp for", panels, join(copy, self._pack_panel(right)))
        work = join(begin, self._strips(right, "tile"), self._epilogue(w))
        loops: list[tuple[str, int | str, int]] = [("b", p.batches, 1), ("p", self.panels, 1), ("block", blocks, 1)]
        if self.pack == "private":
            inner = f"for (int64_t block = 0; block < {blocks}; block++) {{\n{indent(work)}\n}}"
            panel = f"alignas(64) {self.kind} panel[{p.depth * w}];"
            return nest(
                "omp for", loops[:2], join(panel, bounds, f"{{\n{indent(self._pack_panel('panel'))}\n}}", inner)
            )
        if self.kernel.params.get("order") == "rows":
            loops[1:] = reversed(loops[1:])
        return join(packing, nest("omp for", loops, join(bounds, work)))

    def _gathering(self) -> str:
        """One batch at a time, its product in a thread's own buffer, then an epilogue that reads anywhere in it."""
        p, w = self.p, self.width
        loops = []
        for name in self.kernel.outputs:
            store, counts = p.gathered(name, self._tile_width)
            scope, names = Scope(CPP, self.root, {-3: "b"}), {d: f"i{-11 - d}" for d in counts}
            inner = Scope(CPP, scope, names)
            write_stores(inner, [store], {})
            text = indent(inner.lines)
            for depth, (d, count) in enumerate(reversed(counts.items())):
                simd = "#pragma omp simd\n" if depth == 0 else ""
                head = f"for (int64_t {names[d]} = 0; {names[d]} < {count}; {names[d]}++) {{"
                text = f"{simd}{head}\n{text}\n}}" if depth == 0 else f"{head}\n{indent(text)}\n}}"
            loops.append(join(*scope.lines, text))
        return f"""#pragma omp for schedule(static)
for (int64_t b = 0; b < {p.batches}; b++) {{
    alignas(64) {self.kind} tile[{p.rows * self._tile_width}], panel[{p.depth * w}];
    const int64_t m0 = 0, m_end = {p.rows};
    for (int64_t p = 0; p < {self.panels}; p++) {{
        const int64_t n0 = p * {w}, n_end = std::min<int64_t>(n0 + {w}, {p.columns});
        {{
{indent(self._pack_panel("panel"), 3)}
        }}
{indent(self._strips("panel", "tile + n0"), 2)}
    }}
{indent(join(*loops))}
}}"""

    def _dot(self) -> str:
        """32 columns a task, a few dot products of up to four rows at a time."""
        p, name = self.p, self.kernel.name
        assert p.b is not None
        right = _address(
            pointer(p.b.base), p.b.constant, ("b", p.b.step(-3) if p.batches > 1 else 0), ("n", p.b.step(-1))
        )
        rest = p.columns % self.dots
        left, c = self._left("0"), "tile + (m - m0) * 32 + n - n0"
        calls: list[str] = []
        for rows in (min(self.block, 4), p.rows % min(self.block, 4)):
            if rows:
                test = f"m + {rows} <= m_end" if not calls else "m < m_end"
                call = f"{name}_tile<{rows}, {self.dots}>({left}, {right}, {c});"
                inner = f"int64_t n = n0;\nfor (; n + {self.dots} <= n_end; n += {self.dots}) {call}"
                if rest:
                    inner += f"\nif (n < n_end) {name}_tile<{rows}, {rest}>({left}, {right}, {c});"
                head = f"for (; {test}; m += {rows}) {{" if not calls else f"if ({test}) {{"
                calls.append(f"{head}\n{indent(inner)}\n}}")
        task = min(int(self.kernel.params.get("strips", 8)) * 4, -(-p.rows // 4) * 4)
        loops: list[tuple[str, int | str, int]] = [("b", p.batches, 1), ("m0", p.rows, task), ("n0", p.columns, 32)]
        return nest(
            "omp for",
            loops,
            f"""alignas(64) {self.kind} tile[{task * 32}];
const int64_t n_first = n0, n_end = std::min<int64_t>(n0 + 32, {p.columns});
const int64_t m_end = std::min<int64_t>(m0 + {task}, {p.rows});
int64_t m = m0;
{join(*calls)}
{self._epilogue(32).replace("for (int64_t m = m0;", "for (m = m0;")}""",
        )


def _copied(p: Product) -> Access:
    """Where the left operand lies after it was computed into scratch."""
    return Access("left_copy", 0, {-3: p.rows * p.depth, -2: p.depth, -4: 1})


def _address(base: str, constant: int, *terms: tuple[str, int]) -> str:
    """Base + constant + sum of variable * step, without what is zero."""
    parts = [base] + ([str(constant)] if constant else [])
    parts += [v if s == 1 else f"{v} * {s}" for v, s in terms if s and v != "0"]
    return bare(" + ".join(parts))
