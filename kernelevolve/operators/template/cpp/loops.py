"""What the templates of pointwise operations and reductions share: loop nests, arguments, pragmas, costs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernelevolve.operators.template.cpp import search
from kernelevolve.operators.template.cpp.dialect import STORAGE, Cpp, identifier
from kernelevolve.operators.template.expr import Expr, walk
from kernelevolve.operators.template.graph import Dim, Graph
from kernelevolve.operators.template.scalar import Scope, bare
from kernelevolve.operators.template.space import COSTLY, Space
from kernelevolve.operators.template.template import Kernel, KernelSource, Parameter

CPP = Cpp()
PARALLEL_NS = 15_000.0
"""What a parallel region costs, at least: less work than this stays in one thread."""
VARIABLES = ("i", "j", "k", "l", "m", "n", "o", "p")


def variable(dim: int, rank: int) -> str:
    """Name of the loop variable of a dimension: i, j, k … from the outside."""
    return VARIABLES[dim + rank] if rank <= len(VARIABLES) else f"i{dim + rank}"


def bound(n: Dim) -> str:
    """A size as text."""
    return str(n)


def loop(
    parent: Scope, dim: int, name: str, start: str, stop: str, body: Callable[[Scope], Iterable[str]], pragma: str = ""
) -> None:
    """Append a loop to the parent's statements; what does not depend on it is written before it."""
    scope = Scope(CPP, parent, {dim: name})
    lines = list(body(scope))
    parent.lines += [
        *([pragma] if pragma else []),
        *braces(f"for (int64_t {name} = {start}; {name} < {stop}; {name}++)", [*scope.lines, *lines]),
    ]


def braces(head: str, lines: Iterable[str]) -> list[str]:
    """A block."""
    return [f"{head} {{", *indented(lines), "}"]


def indented(lines: Iterable[str]) -> list[str]:
    """One level deeper; pragmas too."""
    return [textwrap.indent(line, "    ") for line in lines]


def simd(width: int, clauses: Iterable[str] = ()) -> str:
    """The pragma of a vectorised loop."""
    return " ".join(["#pragma omp simd", *([f"simdlen({width})"] if width else []), *clauses])


def parallel_for(params: Mapping[str, Any], extra: str = "") -> str:
    """The pragma of a loop shared among threads."""
    schedule = params.get("schedule", "static")
    schedule = {"dynamic": "dynamic, 4"}.get(schedule, schedule)
    return f"#pragma omp parallel for{extra} schedule({schedule})"


def cost_ns(space: Space) -> float:
    """A rough time in one thread, from counts: 1.5 ns for a costly function; a big number if unknown."""
    points = space.size(range(-len(space.shape), 0))
    if points is None:
        return 1e9
    total = 0.0
    for e in walk(*space.expressions()):
        total += 1.5 if e.op in COSTLY else 0.25 if e.op == "element" else 0.05 if e.args else 0.0
    return points * (total + 0.25 * len(space.stores))


def dtypes_ok(graph: Graph, names: Iterable[str]) -> bool:
    """Whether every value has a dtype that C++ can read and write here."""
    return all(graph.values[name].dtype in STORAGE for name in names)


def finish(
    graph: Graph, kernel: Kernel, space: Space, root: Scope, comment: Sequence[str], flavour: str
) -> KernelSource:
    """The function around the statements of the outermost scope."""
    roots = (*space.expressions(), *(s.offset for s in space.stores))
    tables = search.searches(roots)
    reads = dict.fromkeys(e.value for e in walk(*roots) if e.op in ("element", "search"))
    outputs = tuple(s.name for s in space.stores)
    sizes = dict.fromkeys(n for n in space.shape if isinstance(n, str))
    arguments = [*(name for name in reads if name not in outputs), *outputs, *(f"size:{n}" for n in sizes)]
    head = signature(graph, kernel.name, arguments, outputs)
    functions = "".join(search.function(graph, e, flavour) for e in tables)
    notes = "".join(f"// {line}\n" for line in comment)
    code = functions + notes + "\n".join(braces(head, root.lines)) + "\n"
    return KernelSource(code=code, arguments=tuple(arguments), notes=tuple(comment))


def signature(graph: Graph, name: str, arguments: Sequence[str], outputs: Sequence[str]) -> str:
    """The C function's head."""
    texts = []
    for a in arguments:
        if a.startswith("size:"):
            texts.append(f"int64_t {a.removeprefix('size:')}")
        elif a.startswith("scratch:"):
            texts.append(f"char* __restrict {identifier(a.removeprefix('scratch:'))}")
        else:
            const = "" if a in outputs else "const "
            texts.append(f"{const}{STORAGE[graph.values[a].dtype]}* __restrict {identifier(a)}")
    return f'extern "C" void {name}({", ".join(texts)})'


def store(scope: Scope, graph: Graph, name: str, offset: Expr, value: Expr) -> str:
    """The statement that writes one element."""
    text = scope.value(value)
    return CPP.store(name, bare(scope.value(offset)), text, graph.values[name].dtype)


def width_parameter(space: Space, facts: Mapping[str, Any]) -> Parameter:
    """How many lanes a vectorised loop uses."""
    lanes = int(facts.get("vector_lanes_fp32", 8)) or 1
    wide = 2 if any(e.dtype in ("int64", "float64") for e in walk(*space.expressions()) if e.op == "element") else 1
    default = max(lanes // wide, 4)
    choices = tuple(sorted({4, 8, 16, 32, default}))
    return Parameter("simd", default, choices, ("not_vectorised", "narrow_vectors", "spills"), "vector lanes per step")


def parallel_parameter(cost: float, choices: Sequence[str]) -> Parameter:
    """Where threads come in."""
    default = "none" if cost < PARALLEL_NS else choices[0]
    return Parameter(
        "parallel", default, (*choices, "none"), ("single_thread", "launch_overhead", "imbalance"), "what threads share"
    )


SCHEDULE = Parameter("schedule", "static", ("static", "dynamic"), ("imbalance",), "how iterations go to threads")
SEARCH = Parameter("search", "branchless", search.FLAVOURS, ("gather",), "how a sorted table is searched")
