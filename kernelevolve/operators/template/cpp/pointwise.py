"""Pointwise operations: one vectorised loop over all elements, or over the innermost dimension of a nest."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template.affine import simplify
from kernelevolve.operators.template.cpp import loops, search
from kernelevolve.operators.template.cpp.loops import CPP
from kernelevolve.operators.template.expr import Expr, index, walk
from kernelevolve.operators.template.fuse import kernels
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.space import Space, build
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template


def group(graph: Graph, ops: Sequence[str]) -> Kernel:
    """The kernel that computes exactly these operations, everything else being elsewhere."""
    return kernels(graph, {"kernels": [{"ops": list(ops), "template": "group"}]})[0]


class Pointwise(Template):
    """Elementwise expressions with broadcasting, strided and gathered reads, searches; several outputs of one size."""

    name = "pointwise"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Pointwise operations whose outputs have the same number of elements."""
        try:
            if any(graph.op(name).kind != "pointwise" for name in ops):
                return False
            kernel = group(graph, ops)
            space = build(graph, ops, kernel.outputs)
        except ValueError:
            return False
        return loops.dtypes_ok(graph, (*kernel.inputs, *kernel.outputs)) and len(space.shape) <= len(loops.VARIABLES)

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """Vector width, threads, elements per chunk, kind of search."""
        space = build(graph, ops, group(graph, ops).outputs)
        found = [
            loops.width_parameter(space, facts),
            loops.parallel_parameter(loops.cost_ns(space), ("elements",)),
            loops.SCHEDULE,
        ]
        last = space.shape[-1] if space.shape else 1
        rows = space.size(range(-len(space.shape), -1)) or 0
        if len(space.shape) > 1 and isinstance(last, int) and last >= 4096:
            few = rows < 4 * int(facts.get("cores", 1))
            found.append(
                Parameter(
                    "chunk",
                    2048 if few else 0,
                    (0, 1024, 2048, 8192),
                    ("imbalance",),
                    "elements of a row per thread step",
                )
            )
        tables = search.searches(space.expressions())
        sizes = [graph.values[e.value].shape[0] for e in tables]
        if any(isinstance(n, int) and n <= search.LINEAR_LIMIT for n in sizes):
            short = max(int(n) for n in sizes) <= 16
            found.append(Parameter(**{**vars(loops.SEARCH), "default": "linear" if short else "branchless"}))
        if any(e.op == "search" or (e.op == "element" and not _straight(e)) for e in walk(*space.expressions())):
            found.append(Parameter("vectorise", True, (True, False), ("gather",), "vector gathers or scalar reads"))
        return tuple(found)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """Write the kernel."""
        space, params = build(graph, kernel.ops, kernel.outputs), kernel.params
        rank = len(space.shape)
        root = Scope(CPP)
        threads = params["parallel"] != "none"
        if rank == 0:
            root.expect(*(s.value for s in space.stores))
            root.lines += [loops.store(root, graph, s.name, s.offset, s.value) for s in space.stores]
        elif rank == 1:
            self._last(graph, root, space, params, threads)
        else:
            self._rows(graph, root, space, params, threads)
        sizes = " x ".join(map(str, space.shape)) or "one element"
        comment = [
            f"{', '.join(kernel.outputs)}: elementwise over {sizes}; "
            + (f"{params['simd']} lanes" if params.get("vectorise", True) else "scalar, for the gathers")
            + (
                f", threads share the {'rows' if rank > 1 else 'elements'} ({params.get('schedule', 'static')})"
                if threads
                else ", one thread: too little work to wake others"
            )
        ]  # fmt: skip
        return loops.finish(graph, kernel, space, root, comment, params.get("search", "branchless"))

    def _rows(self, graph: Graph, root: Scope, space: Space, params: Mapping[str, Any], threads: bool) -> None:
        rank = len(space.shape)
        outer = list(range(-rank, -1))
        chunk, last = int(params.get("chunk", 0) or 0), space.shape[-1]
        chunked = bool(chunk and isinstance(last, int) and last > chunk and len(_pieces(space)) == 1)
        names = {d: loops.variable(d, rank) for d in outer}
        head, decode = _row_loop(space, outer, names)
        pieces = []
        for conditions, part in _branches(space, outer):
            scope = Scope(CPP, root, names)
            span = ("start", "stop") if chunked else None
            self._last(graph, scope, part, params, threads=False, span=span)
            pieces.append((conditions, scope.lines))
        lines = [*decode, *(pieces[0][1] if len(pieces) == 1 else _chain(pieces))]
        if chunked:
            count = -(-int(last) // chunk)
            total = f"{extent(space, outer)} * {count}"
            head = f"for (int64_t part = 0; part < {total}; part++)"
            first = f"const int64_t row = part / {count}, start = part % {count} * {chunk};"
            stop = f"const int64_t stop = start + {chunk} < {last} ? start + {chunk} : {last};"
            lines = [first, stop, *(decoded(space, outer, names)), *lines[len(decode) :]]
        root.lines += [*([loops.parallel_for(params)] if threads else []), *loops.braces(head, lines)]

    def _last(
        self,
        graph: Graph,
        parent: Scope,
        space: Space,
        params: Mapping[str, Any],
        threads: bool,
        span: tuple[str, str] | None = None,
    ) -> None:
        rank, name = len(space.shape), loops.variable(-1, len(space.shape))
        vector = params.get("vectorise", True)
        for low, high, part in _pieces(space):
            roots = [s.value for s in part.stores]

            def body(scope: Scope, part: Space = part, roots: list[Expr] = roots) -> list[str]:
                scope.expect(*roots, *(s.offset for s in part.stores))
                return [loops.store(scope, graph, s.name, s.offset, s.value) for s in part.stores]

            start, stop = span or (str(low), loops.bound(high))
            pragma = loops.simd(int(params["simd"])) if vector else ""
            if threads and rank == 1:
                pragma = loops.parallel_for(params, f" simd simdlen({params['simd']})" if vector else "")
            loops.loop(parent, -1, name, start, stop, body, pragma)


def _straight(e: Expr) -> bool:
    """Whether neighbouring positions read neighbouring or equal elements."""
    return not any(n.op in ("element", "search", "where", "mod", "floordiv") for n in walk(e.args[0]))


def _cuts(space: Space, dim: int) -> list[int]:
    """Positions along `dim` where a choice by position changes."""
    cuts = set()
    low, high = space.ranges[dim]
    for e in walk(*(s.value for s in space.stores)):
        if e.op in ("lt", "ge", "le", "gt") and e.args[0] is index(dim) and e.args[1].op == "const":
            cut = int(e.args[1].value) + (e.op in ("le", "gt"))
            if low < cut <= high:
                cuts.add(cut)
    return sorted(cuts)


def _between(space: Space, dim: int, low: int, high: int) -> Space:
    """The space with an index limited to [low, high), and what that decides decided."""
    ranges = {**space.ranges, dim: (low, high - 1)}
    kept = index(dim)

    def limited(e: Expr) -> Expr:
        return simplify(e, ranges) if kept in set(walk(e)) else e

    return space.change(limited)


def _pieces(space: Space) -> list[tuple[int, int | str, Space]]:
    """The innermost loop cut where choices by position change, when that makes it few pieces."""
    size = space.shape[-1]
    cuts = _cuts(space, -1)
    if not isinstance(size, int) or not cuts or len(cuts) > 8 or size // (len(cuts) + 1) < 8:
        return [(0, size, space)]
    edges = [0, *cuts, size]
    return [(a, b, _between(space, -1, a, b)) for a, b in itertools.pairwise(edges)]


def _branches(space: Space, outer: Sequence[int]) -> list[tuple[str, Space]]:
    """Cases by the position along an outer dimension, for choices that it decides."""
    rank = len(space.shape)
    for dim in outer:
        cuts, size = _cuts(space, dim), space.shape[dim]
        if cuts and isinstance(size, int) and len(cuts) < 64:
            edges = [0, *cuts, size]
            return [
                (f"{loops.variable(dim, rank)} < {b}", _between(space, dim, a, b)) for a, b in itertools.pairwise(edges)
            ]
    return [("", space)]


def _chain(pieces: Sequence[tuple[str, list[str]]]) -> list[str]:
    lines: list[str] = []
    for k, (condition, body) in enumerate(pieces):
        head = (
            f"if ({condition}) {{" if k == 0 else "} else {" if k == len(pieces) - 1 else f"}} else if ({condition}) {{"
        )
        lines += [head, *loops.indented(body)]
    return [*lines, "}"]


def extent(space: Space, dims: Sequence[int]) -> str:
    """How many points there are along dimensions, as text."""
    return " * ".join(loops.bound(space.shape[d]) for d in dims)


def _row_loop(space: Space, outer: Sequence[int], names: Mapping[int, str]) -> tuple[str, list[str]]:
    """Head of the loop over rows, and the statements that find a row's position."""
    if len(outer) == 1:
        name = names[outer[0]]
        return f"for (int64_t {name} = 0; {name} < {space.shape[outer[0]]}; {name}++)", []
    return f"for (int64_t row = 0; row < {extent(space, outer)}; row++)", decoded(space, outer, names)


def decoded(space: Space, outer: Sequence[int], names: Mapping[int, str]) -> list[str]:
    """The statement that finds the position of a row from its number."""
    parts = []
    for k, d in enumerate(outer):
        later = 1
        for n in (space.shape[e] for e in outer[k + 1 :]):
            later *= int(n)
        text = "row" if later == 1 else f"row / {later}"
        parts.append(f"{names[d]} = {text}" + (f" % {space.shape[d]}" if k else ""))
    return [f"const int64_t {', '.join(parts)};"]
