"""Search in a sorted table: a function per table, written for its length.

branchless: halving with conditional adds and a fixed number of steps, so that a vectorised loop searches for as many
values as it has lanes, by gathers; in a scalar loop the same steps of neighbours overlap. linear: compare with every
entry and count; best for a handful.
"""

from __future__ import annotations

from kernelevolve.operators.template.cpp.dialect import STORAGE, Cpp, identifier
from kernelevolve.operators.template.expr import Expr, walk
from kernelevolve.operators.template.graph import Graph

FLAVOURS = ("branchless", "linear")
LINEAR_LIMIT = 64
"""Longest table that is compared entry by entry."""


def searches(roots: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Distinct (table, side) pairs that expressions search, as one node each."""
    found: dict[tuple[str, bool], Expr] = {}
    for e in walk(*roots):
        if e.op == "search":
            found.setdefault((e.value, e.right), e)
    return tuple(found.values())


def function(graph: Graph, e: Expr, flavour: str) -> str:
    """The function that finds how many entries are below (right: not above) a value."""
    table = graph.values[e.value]
    n = int(table.shape[0])
    kind, name = STORAGE[table.dtype], identifier(e.value)
    count = "int32_t" if kind in ("float", "int32_t") else "int64_t"
    load = {"bfloat16": "k_load({})", "float16": "float({})"}.get(table.dtype, "{}")
    left_out = ">" if e.right else ">="

    def below(at: str) -> str:
        return f"!({load.format(f'table[{at}]')} {left_out} x)"

    side = "right" if e.right else "left"
    lines = [
        f"static inline int64_t search_{name}_{side}(const {kind}* table, {Cpp.types[table.dtype]} x) {{",
        f"    {count} n = 0;",
    ]
    if flavour == "linear" and n <= LINEAR_LIMIT:
        lines += [f"    n += {below(str(k))};" for k in range(n)]
    else:
        # Steps are masked and not chosen by `?:`, because GCC 12 vectorises a table read at a chosen 0 or 1 wrongly.
        step = 1 << max(n.bit_length() - 1, 0)
        if n > step:
            lines.append(f"    n += {n - step} & -{count}({below(str(step - 1))});")
        while step > 1:
            step //= 2
            lines.append(f"    n += {step} & -{count}({below(f'n + {step - 1}' if step > 1 else 'n')});")
        if n:
            lines.append(f"    n += 1 & -{count}({below('n')});")
    return "\n".join([*lines, "    return n;", "}"]) + "\n"
