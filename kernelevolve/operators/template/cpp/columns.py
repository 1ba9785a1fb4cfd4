"""Columns: reductions over dimensions that are not the last: softmax over channels, sums over rows, batch statistics.

Vectors go across neighbouring columns, so every read is contiguous and no lane waits for another. A block of columns
has its partial results in small arrays; a thread takes whole blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template import rewrite
from kernelevolve.operators.template.affine import ravel, strides_of
from kernelevolve.operators.template.cpp import loops, search
from kernelevolve.operators.template.cpp.dialect import identifier
from kernelevolve.operators.template.cpp.loops import CPP
from kernelevolve.operators.template.cpp.pointwise import group
from kernelevolve.operators.template.expr import Expr, index, walk
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope, bare
from kernelevolve.operators.template.space import Reduction, Space, Store, build, candidates_to_keep, locals_of
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template

KEEP_BYTES = 256 * 1024
"""Largest buffer for one block of columns, on the thread's stack."""
SERIAL_ADDITIONS = 1024
"""Longer sums down a column are added up in pieces of 256, so that the error does not grow with the length."""


class Columns(Template):
    """Groups of pointwise operations and reductions whose reduced dimensions do not include the last one."""

    name = "columns"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Reductions over one space with the last dimension kept."""
        try:
            kernel = group(graph, ops)
            space = build(graph, ops, kernel.outputs)
        except ValueError:
            return False
        known = (
            all(isinstance(space.shape[d], int) and space.shape[d] for d in (*space.inner, -1))
            if space.shape
            else False
        )
        values = (*kernel.inputs, *kernel.outputs)
        return (
            bool(space.reductions and space.inner)
            and known
            and not space.reduced[-1]
            and loops.dtypes_ok(graph, values)
        )

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """Vector width, columns per block, rows per step, threads, what is kept between stages."""
        outputs = group(graph, ops).outputs
        space = build(graph, ops, outputs)
        columns = int(space.shape[-1])
        width = loops.width_parameter(space, facts)
        blocks = tuple(n for n in (32, 64, 128, 256, 512, 1024) if n < 2 * columns) or (32,)
        rows = space.size(space.outer[:-1])
        cores = int(facts.get("cores", 1))
        default = max((n for n in blocks if n <= 256), default=blocks[0])
        if rows is not None:
            while default > 64 and rows * -(-columns // default) < 2 * cores:
                default //= 2
        found = [
            width,
            Parameter("block", default, blocks, ("cache_resident", "memory_bound", "imbalance"), "columns per block"),
            Parameter(
                "rows",
                2,
                (1, 2, 4, 8),
                ("reduction_chain", "memory_bound", "spills"),
                "rows added per pass over a block",
            ),
            loops.parallel_parameter(loops.cost_ns(space), ("blocks",)),
            loops.SCHEDULE,
        ]
        kept = candidates_to_keep(graph, ops, outputs)
        if kept and any(4 * b * (space.size(space.inner) or 0) <= KEEP_BYTES for b in blocks):
            costly = any(kept.values())
            choices = ("nothing", *(["costly"] if costly else []), *(["everything"] if not all(kept.values()) else []))
            why = "what a block keeps between stages"
            found.append(
                Parameter("keep", "costly" if costly else "nothing", choices, ("math_calls", "memory_bound"), why)
            )
        found += rewrite.parameters(space)
        if search.searches(space.expressions()):
            found.append(loops.SEARCH)
        return tuple(found)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """Write the kernel."""
        keep = _kept_names(graph, kernel)
        space = rewrite.applied(build(graph, kernel.ops, kernel.outputs, keep), kernel.params)
        root = Scope(CPP)
        _Writer(graph, space, kernel.params, root).write()
        length = " x ".join(str(space.shape[d]) for d in space.inner)
        threads = "one thread" if kernel.params["parallel"] == "none" else "threads share blocks of columns"
        comment = (
            f"{', '.join(kernel.outputs)}: reductions ({', '.join(r.op for r in space.reductions)}) down {length} "
            f"rows of {space.shape[-1]} columns, in blocks of {kernel.params['block']} columns and "
            f"{kernel.params['rows']} rows, "
            f"{kernel.params['simd']} lanes, {threads}" + (f", {', '.join(keep)} kept between stages" if keep else "")
        )
        return loops.finish(graph, kernel, space, root, [comment], kernel.params.get("search", "branchless"))


def _kept_names(graph: Graph, kernel: Kernel) -> list[str]:
    how = kernel.params.get("keep", "nothing")
    if how == "nothing":
        return []
    space = build(graph, kernel.ops, kernel.outputs)
    if 4 * int(kernel.params["block"]) * (space.size(space.inner) or 0) > KEEP_BYTES:
        return []
    found = candidates_to_keep(graph, kernel.ops, kernel.outputs)
    return [name for name, costly in found.items() if costly or how == "everything"]


class _Writer:
    """Writes one kernel."""

    def __init__(self, graph: Graph, space: Space, params: Mapping[str, Any], root: Scope) -> None:
        self.graph, self.space, self.params, self.root = graph, space, params, root
        self.rank = len(space.shape)
        self.width, self.block = int(params["simd"]), min(int(params["block"]), int(space.shape[-1]))
        self.names = {d: loops.variable(d, self.rank) for d in range(-self.rank, 0)}
        self.column = self.names[-1]
        self.buffered: set[str] = set()
        self.arrays: dict[Expr, str] = {}
        """Values per column: an expression -> the array that holds it."""
        self.taken = {s.name for s in space.stores}

    def write(self) -> None:
        space = self.space
        outer = list(space.outer[:-1])
        row = Scope(CPP, self.root, {d: self.names[d] for d in outer})
        points = space.size(space.inner)
        for name in space.kept:
            kind = CPP.types[self.graph.values[name].dtype]
            row.lines.append(f"alignas(64) {kind} kept_{identifier(name)}[{int(points or 1) * self.block}];")
        last = 1 + max(r.stage for r in space.reductions)
        for stage in range(last):
            self._stage(row, [r for r in space.reductions if r.stage == stage])
            later = [r.body for r in space.reductions if r.stage > stage]
            later += [s.value for s in space.stores if not s.per_row] + list(space.kept.values())
            self._columnwise(row, later, stage)
        per_row = [s for s in space.stores if s.per_row]
        if per_row:
            self._line(row, lambda scope: self._written(scope, per_row))
        full = [s for s in space.stores if not s.per_row]
        if full:
            self._nest(
                row, list(space.inner), lambda scope: self._line(scope, lambda inner: self._written(inner, full))
            )
        columns = int(space.shape[-1])
        count = -(-columns // self.block)
        span = f"const int64_t start = part{f' % {count}' if outer else ''} * {self.block};"
        stop = f"start + {self.block}"
        stop = (
            stop
            if columns % self.block == 0
            else f"start + {self.block} < {columns} ? start + {self.block} : {columns}"
        )
        lines = [*self._decoded(outer, count), span, f"const int64_t stop = {stop};", *row.lines]
        total = " * ".join([*(loops.bound(space.shape[d]) for d in outer), str(count)])
        if self.params["parallel"] != "none":
            self.root.lines.append(loops.parallel_for(self.params))
        self.root.lines += loops.braces(f"for (int64_t part = 0; part < {total}; part++)", lines)

    def _decoded(self, outer: Sequence[int], count: int) -> list[str]:
        parts, later = [], count
        for d in reversed(outer):
            text = "part" if later == 1 else f"part / {later}"
            n = self.space.shape[d]
            parts.append(f"{self.names[d]} = {text}" + (f" % {n}" if d != outer[0] else ""))
            later *= int(n) if isinstance(n, int) else 1
        return [f"const int64_t {', '.join(reversed(parts))};"] if parts else []

    def _line(self, parent: Scope, body: Any, pragma: str = "") -> None:
        """A vectorised loop over the block's columns."""
        loops.loop(parent, -1, self.column, "start", "stop", body, pragma or loops.simd(self.width))

    def _nest(self, parent: Scope, dims: list[int], body: Any) -> None:
        """Loops over the reduced dimensions."""

        def inner(scope: Scope) -> list[str]:
            if len(dims) > 1:
                self._nest(scope, dims[1:], body)
            else:
                body(scope)
            return []

        loops.loop(parent, dims[0], self.names[dims[0]], "0", str(self.space.shape[dims[0]]), inner)

    def _known(self, scope: Scope) -> None:
        """Tell a scope inside a column loop what the arrays hold."""
        for e, array in self.arrays.items():
            scope.bind(e, f"{array}[{self.column} - start]")

    def _values(self, scope: Scope, roots: Sequence[Expr]) -> list[str]:
        """Texts of expressions at a point; kept values are read, or computed and put away at first use."""
        self._known(scope)
        order = [n for n in self.space.kept if any(n in locals_of(r, self.space.kept) for r in roots)]
        scope.expect(*roots, *(self.space.kept[n] for n in order if n not in self.buffered))
        for name in order:
            local = Expr("local", (), self.graph.values[name].dtype, name)
            sizes = [self.space.shape[d] for d in self.space.inner]
            row = ravel([index(d) for d in self.space.inner], [s * self.block for s in strides_of(sizes)])
            place = f"kept_{identifier(name)}[{bare(scope.value(row))} + ({self.column} - start)]"
            if name in self.buffered:
                scope.bind(local, place)
            else:
                text = scope.name(local, scope.value(self.space.kept[name]))
                scope.lines.append(f"{place} = {text};")
        return [scope.value(r) for r in roots]

    def _written(self, scope: Scope, stores: Sequence[Store]) -> list[str]:
        texts = self._values(scope, [s.value for s in stores])
        return [
            CPP.store(s.name, bare(scope.value(s.offset)), text, self.graph.values[s.name].dtype)
            for s, text in zip(stores, texts, strict=True)
        ]

    def _stage(self, row: Scope, reductions: Sequence[Reduction]) -> None:
        names = [identifier(r.name) + ("_block" if r.name in self.taken else "") for r in reductions]
        pieces = any(r.op == "sum" for r in reductions) and (self.space.size(self.space.inner) or 0) > SERIAL_ADDITIONS
        size = int(self.space.shape[self.space.inner[0]])
        each = max(1, 256 // max((self.space.size(self.space.inner) or 1) // size, 1))
        if not pieces or each >= size:
            self._declare(row, reductions, names)
            self._accumulate(row, reductions, names, "0", str(size))
        else:
            self._declare(row, reductions, names)
            block, parts = Scope(CPP, row), [f"{n}_piece" for n in names]
            self._declare(block, reductions, parts)
            stop = f"piece + {each}" if size % each == 0 else f"(piece + {each} < {size} ? piece + {each} : {size})"
            self._accumulate(block, reductions, parts, "piece", stop)

            def joined(scope: Scope) -> list[str]:
                place = f"[{self.column} - start]"
                return [_take(r.op, n + place, p + place) for r, n, p in zip(reductions, names, parts, strict=True)]

            self._line(block, joined)
            row.lines += loops.braces(f"for (int64_t piece = 0; piece < {size}; piece += {each})", block.lines)
        roots = [r.body for r in reductions]
        self.buffered.update(n for n in self.space.kept if any(n in locals_of(r, self.space.kept) for r in roots))
        for r, name in zip(reductions, names, strict=True):
            self.arrays[Expr("local", (), r.dtype, r.name)] = name

    def _declare(self, scope: Scope, reductions: Sequence[Reduction], names: Sequence[str]) -> None:
        inits = []
        for r, name in zip(reductions, names, strict=True):
            kind = CPP.types[r.dtype]
            neutral = {
                "sum": "0",
                "prod": "1",
                "max": f"k_lowest<{kind}>",
                "min": f"k_highest<{kind}>",
                "any": "false",
                "all": "true",
            }
            scope.lines.append(f"alignas(64) {kind} {name}[{self.block}];")
            inits.append(f"{name}[c] = {neutral[r.op]};")
        scope.lines += [f"for (int64_t c = 0; c < {self.block}; c++) {{", *loops.indented(inits), "}"]

    def _accumulate(
        self, parent: Scope, reductions: Sequence[Reduction], names: Sequence[str], start: str, stop: str
    ) -> None:
        """Loops over the reduced dimensions; the last one takes several rows per pass where that divides."""
        dims = list(self.space.inner)
        self._accumulate_over(parent, dims, reductions, names, start, stop)

    def _accumulate_over(
        self,
        parent: Scope,
        dims: list[int],
        reductions: Sequence[Reduction],
        names: Sequence[str],
        start: str,
        stop: str,
    ) -> None:
        dim, name, size = dims[0], self.names[dims[0]], int(self.space.shape[dims[0]])
        if len(dims) > 1:
            scope = Scope(CPP, parent, {dim: name})
            inner = int(self.space.shape[dims[1]])
            self._accumulate_over(scope, dims[1:], reductions, names, "0", str(inner))
            parent.lines += loops.braces(f"for (int64_t {name} = {start}; {name} < {stop}; {name}++)", scope.lines)
            return
        rows = int(self.params["rows"])
        if start != "0" and size % 256:
            rows = 1  # pieces whose length is not known
        whole = size // rows * rows if start == "0" else None
        spans = [(start, stop if whole is None or whole == size else str(whole), rows)]
        if whole is not None and whole < size:
            spans.append((str(whole), str(size), 1))
        for low, high, step in spans:
            if low == high:
                continue
            scopes = [Scope(CPP, parent, {dim: f"({name} + {s})" if s else name}) for s in range(step)]
            head: list[str] = []
            body: list[str] = []
            for outer in scopes:
                inner_scope = Scope(CPP, outer, {-1: self.column})
                texts = self._values(inner_scope, [r.body for r in reductions])
                taken = [
                    _take(r.op, f"{n}[{self.column} - start]", t)
                    for r, n, t in zip(reductions, names, texts, strict=True)
                ]
                head += outer.lines
                body += [*inner_scope.lines, *taken]
            line = [
                loops.simd(self.width),
                *loops.braces(f"for (int64_t {self.column} = start; {self.column} < stop; {self.column}++)", body),
            ]
            increment = f"{name} += {step}" if step > 1 else f"{name}++"
            parent.lines += loops.braces(f"for (int64_t {name} = {low}; {name} < {high}; {increment})", [*head, *line])

    def _columnwise(self, row: Scope, later: Sequence[Expr], stage: int) -> None:
        """Put what later loops need per column, and would compute again in every row, into arrays."""
        ready = {r.name for r in self.space.reductions if r.stage <= stage}
        found: dict[Expr, None] = {}
        varying = {index(d) for d in self.space.inner}

        def visit(e: Expr, seen: set[Expr]) -> None:
            if e in seen or e in self.arrays:
                return
            seen.add(e)
            nodes = set(walk(e))
            here = {n.value for n in nodes if n.op == "local"}
            if here and here <= ready and not nodes & varying and e.op != "local":
                found[e] = None
                return
            for a in e.args:
                visit(a, seen)

        seen: set[Expr] = set()
        for e in later:
            visit(e, seen)
        if not found:
            return
        arrays = {e: f"column{n}" for e, n in zip(found, itertools.count(len(self.arrays) + 1), strict=False)}
        row.lines += [f"alignas(64) {CPP.types[e.dtype]} {a}[{self.block}];" for e, a in arrays.items()]

        def body(scope: Scope) -> list[str]:
            texts = self._values(scope, list(arrays))
            return [f"{a}[{self.column} - start] = {bare(t)};" for a, t in zip(arrays.values(), texts, strict=True)]

        self._line(row, body)
        self.arrays.update(arrays)


def _take(op: str, name: str, text: str) -> str:
    """The statement that takes a value in."""
    if op in ("sum", "prod"):
        return f"{name} {'+' if op == 'sum' else '*'}= {text};"
    if op in ("any", "all"):
        return f"{name} {'|' if op == 'any' else '&'}= {text};"
    return f"{name} = k_{op}({text}, {name});"
