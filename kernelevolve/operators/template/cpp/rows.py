"""Rows: reductions over trailing dimensions with everything around them: softmax, norms, losses, argmax, full sums.

A row is read as often as it has stages that need each other's results; it stays in the cache meanwhile. What is costly
(e^x) or gathered may be kept in a small buffer between stages instead of being computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template import rewrite
from kernelevolve.operators.template.affine import ravel, strides_of
from kernelevolve.operators.template.cpp import loops, search
from kernelevolve.operators.template.cpp.accumulate import BLOCK, Accumulator, accumulate
from kernelevolve.operators.template.cpp.dialect import STORAGE, identifier
from kernelevolve.operators.template.cpp.loops import CPP
from kernelevolve.operators.template.cpp.pointwise import decoded, extent, group
from kernelevolve.operators.template.expr import Expr, index
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.scalar import Scope, bare
from kernelevolve.operators.template.space import Reduction, Space, Store, build, candidates_to_keep, locals_of
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter, Template

KEEP_BYTES = 128 * 1024
"""Largest buffer for one row, on the thread's stack."""
CHUNKS = 64
"""Pieces of a row that threads share; a fixed number, combined in order, so that results are the same each time."""


class Rows(Template):
    """Groups of pointwise operations and reductions whose reduced dimensions include the last one."""

    name = "rows"
    language = "cpp"

    def covers(self, graph: Graph, ops: tuple[str, ...]) -> bool:
        """Reductions over one space with the last dimension reduced, all sizes known inside a row."""
        try:
            kernel = group(graph, ops)
            space = build(graph, ops, kernel.outputs)
        except ValueError:
            return False
        known = all(isinstance(space.shape[d], int) and space.shape[d] for d in space.inner)
        values = (*kernel.inputs, *kernel.outputs)
        return (
            bool(space.reductions)
            and (not space.inner or space.reduced[-1])
            and known
            and loops.dtypes_ok(graph, values)
        )

    def parameters(self, graph: Graph, ops: tuple[str, ...], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
        """Vector width, accumulators, threads, what is kept between stages."""
        outputs = group(graph, ops).outputs
        space = build(graph, ops, outputs)
        last = int(space.shape[-1]) if space.inner else 1
        width = loops.width_parameter(space, facts)
        found = [width]
        if last >= 4 * width.default:
            choices = tuple(n for n in (1, 2, 4, 8) if last >= n * width.default)
            found.append(
                Parameter(
                    "streams", choices[min(1, len(choices) - 1)], choices, ("reduction_chain", "spills"), "accumulators"
                )
            )
        rows, cost = space.size(space.outer), loops.cost_ns(space)
        few = rows is not None and rows < 2 * int(facts.get("cores", 1))
        places: tuple[str, ...] = ("inside", "rows") if few else ("rows", "inside")
        if rows == 1:
            places = ("inside",)
        elif rows is None or (rows and cost / rows < loops.PARALLEL_NS):
            places = ("rows",)
        found.append(loops.parallel_parameter(cost, places))
        found.append(loops.SCHEDULE)
        bytes_per_row = 4 * (space.size(space.inner) or 0)
        kept = candidates_to_keep(graph, ops, outputs)
        if kept and bytes_per_row <= KEEP_BYTES:
            costly = any(kept.values())
            ways = ("nothing", *(["costly"] if costly else []), *(["everything"] if not all(kept.values()) else []))
            found.append(
                Parameter(
                    "keep",
                    "costly" if costly else "nothing",
                    ways,
                    ("math_calls", "memory_bound"),
                    "what a row keeps between stages",
                )
            )
        found += rewrite.parameters(space)
        if search.searches(space.expressions()):
            found.append(loops.SEARCH)
        return tuple(found)

    def emit(self, graph: Graph, kernel: Kernel) -> KernelSource:
        """Write the kernel."""
        keep = kept_names(graph, kernel)
        space = rewrite.applied(build(graph, kernel.ops, kernel.outputs, keep), kernel.params)
        root = Scope(CPP)
        _Writer(graph, space, kernel.params, root).write()
        comment = [_comment(kernel, space, keep)]
        return loops.finish(graph, kernel, space, root, comment, kernel.params.get("search", "branchless"))


def kept_names(graph: Graph, kernel: Kernel) -> list[str]:
    """Values per point that the genome keeps in a buffer. One that builds on another kept one is computed from it."""
    how = kernel.params.get("keep", "nothing")
    if how == "nothing" or kernel.params.get("parallel") == "inside":
        return []
    found = candidates_to_keep(graph, kernel.ops, kernel.outputs)
    return [name for name, costly in found.items() if costly or how == "everything"]


def _comment(kernel: Kernel, space: Space, keep: Sequence[str]) -> str:
    stages = 1 + max(r.stage for r in space.reductions)
    params = kernel.params
    rows = " x ".join(str(space.shape[d]) for d in space.outer) or "1"
    row = " x ".join(str(space.shape[d]) for d in space.inner)
    threads = {"rows": "threads share the rows", "inside": "threads share each row", "none": "one thread"}[
        params["parallel"]
    ]
    kept = f", {', '.join(keep)} kept between stages" if keep else ""
    return (
        f"{', '.join(kernel.outputs)}: {rows} rows of {row}, {stages} reduction stage{'s' if stages > 1 else ''} "
        f"({', '.join(r.op for r in space.reductions)}), {params['simd']} lanes x "
        f"{params.get('streams', 1)} accumulators, {threads}{kept}"
    )


class _Writer:
    """Writes one kernel."""

    def __init__(self, graph: Graph, space: Space, params: Mapping[str, Any], root: Scope) -> None:
        self.graph, self.space, self.params, self.root = graph, space, params, root
        self.rank = len(space.shape)
        self.inside = params["parallel"] == "inside"
        self.width = int(params["simd"])
        self.names = {d: loops.variable(d, self.rank) for d in range(-self.rank, 0)}
        self.buffered: set[str] = set()
        written = {s.name for s in space.stores}
        self.suffix = "_row" if any(r.name in written for r in space.reductions) else ""

    def write(self) -> None:
        space, root = self.space, self.root
        outer = list(space.outer)
        row = Scope(CPP, root, {d: self.names[d] for d in outer}) if outer else root
        self._buffers(row)
        for stage in range(1 + max(r.stage for r in space.reductions)):
            self._stage(row, [r for r in space.reductions if r.stage == stage])
        per_row = [s for s in space.stores if s.per_row]
        row.expect(*(s.value for s in per_row), *(s.offset for s in per_row))
        row.lines += [loops.store(row, self.graph, s.name, s.offset, s.value) for s in per_row]
        self._stores(row, [s for s in space.stores if not s.per_row])
        if not outer:
            return
        if len(outer) == 1:
            name = self.names[outer[0]]
            head, lines = f"for (int64_t {name} = 0; {name} < {space.shape[outer[0]]}; {name}++)", row.lines
        else:
            head = f"for (int64_t row = 0; row < {extent(space, outer)}; row++)"
            lines = [*decoded(space, outer, self.names), *row.lines]
        if self.params["parallel"] == "rows":
            root.lines.append(loops.parallel_for(self.params))
        root.lines += loops.braces(head, lines)

    def _buffers(self, row: Scope) -> None:
        points = self.space.size(self.space.inner)
        for name in self.space.kept:
            if not self._own_output(name):
                kind = CPP.types[self.graph.values[name].dtype]
                row.lines.append(f"alignas(64) {kind} kept_{identifier(name)}[{points}];")

    def _own_output(self, name: str) -> Store | None:
        """The store of a kept value that is an output itself: its memory is the buffer."""
        plain = self.graph.values[name].dtype in STORAGE and self.graph.values[name].dtype not in (
            "bfloat16",
            "float16",
        )
        return next((s for s in self.space.stores if s.name == name and not s.per_row and plain), None)

    def _place(self, scope: Scope, name: str) -> str:
        """Where a kept value is at the scope's point."""
        own = self._own_output(name)
        if own is not None:
            return f"{identifier(name)}[{bare(scope.value(own.offset))}]"
        sizes = [self.space.shape[d] for d in self.space.inner]
        flat = ravel([index(d) for d in self.space.inner], strides_of(sizes))
        return f"kept_{identifier(name)}[{bare(scope.value(flat))}]"

    def _values(self, scope: Scope, roots: Sequence[Expr]) -> list[str]:
        """Texts of expressions; kept values are read from their buffer, or computed and put there at first use."""
        order = [n for n in self.space.kept if any(n in locals_of(r, self.space.kept) for r in roots)]
        defined = [n for n in order if n not in self.buffered]
        scope.expect(*roots, *(self.space.kept[n] for n in defined))
        for name in order:
            local = Expr("local", (), self.graph.values[name].dtype, name)
            if name in defined:
                text = scope.name(local, scope.value(self.space.kept[name]))
                scope.lines.append(f"{self._place(scope, name)} = {text};")
            else:
                scope.bind(local, self._place(scope, name))
        return [scope.value(r) for r in roots]

    def _first_used(self, roots: Sequence[Expr]) -> None:
        self.buffered.update(n for n in self.space.kept if any(n in locals_of(r, self.space.kept) for r in roots))

    def _stage(self, row: Scope, reductions: Sequence[Reduction]) -> None:
        roots = [r.body for r in reductions]
        if not self.space.inner:  # over one element each: the value is the element
            for r, text in zip(reductions, self._values(row, roots), strict=True):
                row.bind(Expr("local", (), r.dtype, r.name), text)
            self._first_used(roots)
            return
        if self.inside:
            filled = self._shared_stage(row, reductions)
        else:
            filled = self._nested(row, reductions, list(self.space.inner), self.suffix)
        self._first_used(roots)
        for a in filled:
            row.bind(
                Expr("local", (), a.reduction.dtype, a.reduction.name),
                row.name(_named(a), a.result()) if a.watches_nan else a.result(),
            )

    def _nested(
        self, parent: Scope, reductions: Sequence[Reduction], dims: list[int], suffix: str
    ) -> list[Accumulator]:
        """Loops over `dims` of the row, partial results per loop added up."""
        dim, name = dims[0], self.names[dims[0]]
        size = int(self.space.shape[dim])
        if len(dims) == 1:
            step = BLOCK * self.width * int(self.params.get("streams", 1))
            sums = any(r.op == "sum" and r.dtype.startswith(("float", "bfloat")) for r in reductions)
            if not sums or size <= 2 * step:
                return self._line(parent, reductions, dim, ("0", str(size), size), suffix)
            total = self._total(parent, reductions, suffix)
            block = Scope(CPP, parent)
            whole = size // step * step
            part = self._line(block, reductions, dim, ("block", f"block + {step}", step), "_block")
            joined = [line for own, other in zip(total, part, strict=True) for line in own.join(other.name)]
            parent.lines += loops.braces(
                f"for (int64_t block = 0; block < {whole}; block += {step})", [*block.lines, *joined]
            )
            if whole < size:
                rest = self._line(parent, reductions, dim, (str(whole), str(size), size - whole), "_rest")
                parent.lines += [line for own, other in zip(total, rest, strict=True) for line in own.join(other.name)]
            return total
        total = self._total(parent, reductions, suffix)
        scope = Scope(CPP, parent, {dim: name})
        part = self._nested(scope, reductions, dims[1:], f"_{name}")
        joined = [line for own, other in zip(total, part, strict=True) for line in own.join(other.name)]
        parent.lines += loops.braces(f"for (int64_t {name} = 0; {name} < {size}; {name}++)", [*scope.lines, *joined])
        return total

    def _total(self, parent: Scope, reductions: Sequence[Reduction], suffix: str) -> list[Accumulator]:
        total = [Accumulator(r, f"{identifier(r.name)}{suffix}") for r in reductions]
        parent.lines += [line for a in total for line in a.start()]
        return total

    def _line(
        self, parent: Scope, reductions: Sequence[Reduction], dim: int, span: tuple[str, str, int], suffix: str
    ) -> list[Accumulator]:
        streams = int(self.params.get("streams", 1))
        if span[2] < streams * self.width:
            streams = 1
        return accumulate(
            parent,
            reductions,
            dim,
            self.names[dim],
            span,
            width=self.width,
            streams=streams,
            body=self._values,
            suffix=suffix,
        )

    def _shared_stage(self, row: Scope, reductions: Sequence[Reduction]) -> list[Accumulator]:
        """Threads share the row: partial results per chunk, combined in order."""
        dims = list(self.space.inner)
        dim, name = dims[0], self.names[dims[0]]
        size = int(self.space.shape[dim])
        chunk = Scope(CPP, row)
        if len(dims) > 1:
            count, first = size, [f"const int64_t {name} = chunk;"]
            chunk = Scope(CPP, row, {dim: name})
            part = self._nested(chunk, reductions, dims[1:], "_chunk")
        else:
            step = max(-(-size // CHUNKS), 4 * self.width)
            step = -(-step // self.width) * self.width
            count = -(-size // step)
            first = [f"const int64_t start = chunk * {step}, stop = start + {step} < {size} ? start + {step} : {size};"]
            part = accumulate(
                chunk,
                reductions,
                dim,
                name,
                ("start", "stop", 0),
                width=self.width,
                streams=1,
                body=self._values,
                suffix="_chunk",
            )
        total = self._total(row, reductions, self.suffix)
        kinds = [(a, "int" if a.reduction.op in ("any", "all") else a.kind) for a in part]
        row.lines += [f"{kind} {a.name}s[{count}];" for a, kind in kinds]
        row.lines += [f"int {a.name}s_nan[{count}];" for a in part if a.watches_nan]
        put = [f"{a.name}s[chunk] = {a.name};" for a in part]
        put += [f"{a.name}s_nan[chunk] = {a.name}_nan;" for a in part if a.watches_nan]
        row.lines.append(loops.parallel_for(self.params))
        row.lines += loops.braces(f"for (int64_t chunk = 0; chunk < {count}; chunk++)", [*first, *chunk.lines, *put])
        joined = []
        for own, a in zip(total, part, strict=True):
            value = f"{a.name}s[chunk]"
            joined += own.take(value)[:1]
            joined += [f"{own.name}_nan |= {a.name}s_nan[chunk];"] if a.watches_nan else []
        row.lines += loops.braces(f"for (int64_t chunk = 0; chunk < {count}; chunk++)", joined)
        return total

    def _stores(self, row: Scope, stores: Sequence[Store]) -> None:
        left = [s for s in stores if not (s.name in self.buffered and self._own_output(s.name) is s)]
        if not left:
            return
        if self.space.inner:
            self._store_nest(row, left, list(self.space.inner), shared=self.inside)
        else:
            row.lines += self._written(row, left)

    def _written(self, scope: Scope, stores: Sequence[Store]) -> list[str]:
        texts = self._values(scope, [s.value for s in stores])
        return [
            CPP.store(s.name, bare(scope.value(s.offset)), text, self.graph.values[s.name].dtype)
            for s, text in zip(stores, texts, strict=True)
        ]

    def _store_nest(self, parent: Scope, stores: Sequence[Store], dims: list[int], *, shared: bool) -> None:
        dim, name, size = dims[0], self.names[dims[0]], self.space.shape[dims[0]]
        pragma = loops.parallel_for(self.params) if shared else ""
        if len(dims) > 1:

            def nested(scope: Scope) -> list[str]:
                self._store_nest(scope, stores, dims[1:], shared=False)
                return []

            loops.loop(parent, dim, name, "0", str(size), nested, pragma)
            return

        def body(scope: Scope) -> list[str]:
            return self._written(scope, stores)

        pragma = (
            f"#pragma omp parallel for simd simdlen({self.width}) schedule(static)"
            if shared
            else loops.simd(self.width)
        )
        loops.loop(parent, dim, name, "0", str(size), body, pragma)


def _named(a: Accumulator) -> Expr:
    """A node that stands for the final value of an accumulator, to give it a variable."""
    return Expr("local", (), a.reduction.dtype, f"{a.name} value")
