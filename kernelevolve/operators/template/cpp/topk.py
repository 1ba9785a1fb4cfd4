"""The k largest or smallest elements along a dimension, and sorting of short rows, with positions.

Every element becomes a 64-bit key: 32 bits that order like the value (NaN largest, as in torch), then the position
counted backwards. One integer maximum then finds value and place together, and of equal values the first comes first
(torch leaves the order of equal values open in `topk`; in a stable `sort` it is this one).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template.affine import simplify, unravel
from kernelevolve.operators.template.cpp.anchor import (
    CPP,
    Anchor,
    Store,
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

OUTER, PLACE, ELEMENT = index(-3), index(-2), index(-1)
LONGEST = 8192
"""A row's values and keys stay in a thread's own buffer up to this many elements."""


class Rows:
    """A selection as (outer rows, elements of a row)."""

    def __init__(self, graph: Graph, ops: Sequence[str]) -> None:
        self.anchor = Anchor(graph, ops, ("topk", "sort"))
        op = self.anchor.op
        given = graph.values[op.inputs[0]]
        if given.dtype not in ("float32", "int32") or any(isinstance(n, str) for n in given.shape) or not given.shape:
            raise ValueError("rows of float32 or int32 of known sizes")
        self.dtype, self.kind = given.dtype, STORAGE[given.dtype]
        shape = [int(n) for n in given.shape]
        d = int(op.attrs["dim"]) % len(shape)
        others = shape[:d] + shape[d + 1 :]
        self.outer, self.length = math.prod(others), shape[d]
        self.sorts = op.kind == "sort"
        self.k = self.length if self.sorts else int(op.attrs["k"])
        self.largest = bool(op.attrs.get("descending" if self.sorts else "largest", not self.sorts))
        if 0 in shape or self.k == 0 or self.length > LONGEST:
            raise ValueError("empty or very long rows")
        self.ranges = {-3: (0, self.outer - 1), -2: (0, self.k - 1), -1: (0, self.length - 1)}
        place: list[Expr] = list(unravel(OUTER, others)) if others else []
        here = [*place[:d], PLACE, *place[d:]]
        self.position = tuple(simplify(p, self.ranges) for p in here)
        self.value = self.anchor.read(0, [*place[:d], ELEMENT, *place[d:]], self.ranges)

    @property
    def fits(self) -> bool:
        """Whether everything written is computed from the element at hand."""
        return plain(self.value) and self.anchor.fits(self.position, self.ranges)

    def stores(self, kernel: Kernel) -> tuple[Store, ...]:
        """What to write per place."""
        return self.anchor.stores(kernel.outputs, self.position, self.ranges)


class TopK(Template):
    """One top-k or sort of rows, whatever is pointwise around it."""

    name = "topk"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Rows of float32 or int32 up to a length."""
        try:
            return Rows(graph, ops).fits
        except (ValueError, KeyError):
            return False

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """How the k are found."""
        rows = Rows(graph, ops)
        if rows.sorts or rows.k * 4 > rows.length:
            forms: tuple[str, ...] = ("sort", "select", "threshold")
        else:
            forms = ("select", "threshold", "sort")
        default = "sort" if rows.k > 32 else "select" if rows.k * rows.length <= 4096 else "threshold"
        found = [
            Parameter("method", default, forms, ("reduction_chain", "not_vectorised"),
                      "k vector maxima, one pass that keeps the best k so far, or a full sort"),
            Parameter("chunk", 16, (1, 4, 16, 64), ("imbalance", "launch_overhead"), "rows a thread takes at a time"),
        ]  # fmt: skip
        if rows.length > 16:
            found.append(
                Parameter(
                    "group",
                    32,
                    (16, 32, 64, 128),
                    ("reduction_chain",),
                    "threshold: elements looked at together before any is compared alone",
                )
            )
        return tuple(found)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """Values and keys of a row, then the method."""
        rows = Rows(graph, kernel.ops)
        method = str(kernel.params.get("method", "sort"))
        group = min(int(kernel.params.get("group", 32)), rows.length)
        root = Scope(CPP)
        row = Scope(CPP, root, {-3: "r"})
        load = Scope(CPP, row, {-1: "i"})
        load.lines += [f"value[i] = {write_value(load, rows.value)};", *_key(rows)]
        kept = Scope(CPP, root, {-3: "r"})
        inner = Scope(CPP, kept, {-2: "j"})
        inner.lines.append("const int64_t number = 0xffffffffLL - (best[j] & 0xffffffffLL);")
        values, numbers = rows.anchor.op.outputs[:2]
        write_stores(inner, rows.stores(kernel), {values: "value[number]", numbers: "number"})
        chosen = {"select": _select(rows), "threshold": _threshold(rows, group), "sort": _sort(rows)}[method]
        code = f"""extern "C" void {kernel.name}(
    {signature(graph, kernel)}) {{
{indent(root.lines)}
    #pragma omp parallel for schedule(static, {int(kernel.params.get("chunk", 16))})
    for (int64_t r = 0; r < {rows.outer}; r++) {{
        alignas(64) {rows.kind} value[{rows.length}];
        alignas(64) int64_t keys[{rows.length}], best[{rows.k}];
{indent(row.lines, 2)}
        #pragma omp simd
        for (int64_t i = 0; i < {rows.length}; i++) {{
{indent(load.lines, 3)}
        }}
{indent(chosen, 2)}
{indent(kept.lines, 2)}
        for (int64_t j = 0; j < {rows.k}; j++) {{
{indent(inner.lines, 3)}
        }}
    }}
}}"""
        how = {
            "select": f"{rows.k} vector maxima",
            "threshold": "one pass that keeps the best so far",
            "sort": "keys sorted",
        }[method]
        which = "largest" if rows.largest else "smallest"
        note = f"{rows.k} {which} of {rows.length} by 64-bit keys of value and place: {how}; the first of equals wins"
        return KernelSource(code, arguments(kernel), notes=(note,))


def _key(rows: Rows) -> list[str]:
    """keys[i] of value[i]."""
    flip = "" if rows.largest else "~"
    place = "uint32_t(0xffffffffu - uint32_t(i))"
    if rows.dtype == "int32":
        return [f"keys[i] = int64_t(uint64_t(uint32_t({flip}value[i])) << 32 | {place});"]
    return [
        "const int32_t b = k_bits(value[i] + 0.0f);  // -0 equals 0",
        "const int32_t ordered = value[i] != value[i] ? 0x7fffffff : b ^ ((b >> 31) & 0x7fffffff);",
        f"keys[i] = int64_t(uint64_t(uint32_t({flip}ordered)) << 32 | {place});",
    ]


def _select(rows: Rows) -> str:
    return f"""for (int64_t j = 0; j < {rows.k}; j++) {{
    int64_t top = INT64_MIN;
    #pragma omp simd reduction(max:top)
    for (int64_t i = 0; i < {rows.length}; i++) top = keys[i] > top ? keys[i] : top;
    best[j] = top;
    keys[0xffffffffLL - (top & 0xffffffffLL)] = INT64_MIN;
}}"""


def _threshold(rows: Rows, group: int) -> str:
    return f"""std::fill_n(best, {rows.k}, INT64_MIN);
for (int64_t first = 0; first < {rows.length}; first += {group}) {{
    const int64_t end = std::min<int64_t>(first + {group}, {rows.length});
    int64_t top = INT64_MIN;
    #pragma omp simd reduction(max:top)
    for (int64_t i = first; i < end; i++) top = keys[i] > top ? keys[i] : top;
    if (top <= best[{rows.k - 1}]) continue;
    for (int64_t i = first; i < end; i++) {{
        if (keys[i] <= best[{rows.k - 1}]) continue;
        int64_t j = {rows.k - 1};
        for (; j > 0 && best[j - 1] < keys[i]; j--) best[j] = best[j - 1];
        best[j] = keys[i];
    }}
}}"""


def _sort(rows: Rows) -> str:
    order = "[](int64_t a, int64_t b) { return a > b; }"
    if rows.k < rows.length:
        return f"std::partial_sort_copy(keys, keys + {rows.length}, best, best + {rows.k}, {order});"
    return f"std::copy_n(keys, {rows.length}, best);\nstd::sort(best, best + {rows.length}, {order});"
