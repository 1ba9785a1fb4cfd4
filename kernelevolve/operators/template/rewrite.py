"""Algebraic rewrites of a space: other formulas for the same numbers, which a genome may choose and the judge checks.

reciprocal: x / s with one s per row becomes x * (1/s): one division per row; rounds twice.
one_pass: sum((x - mean)^2) becomes sum((x - k)^2) - n (mean - k)^2 with k the mean of four elements, so that mean
    and variance need one pass (Chan, Golub and LeVeque, The American Statistician 37, 1983, on shifted data).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from kernelevolve.operators.template.affine import simplify
from kernelevolve.operators.template.expr import COMPARISONS, FLOATS, Expr, call, const, index, substitute, walk
from kernelevolve.operators.template.space import Reduction, Space, locals_of
from kernelevolve.operators.template.template import Parameter

STEPS = frozenset(("round", "floor", "ceil", "trunc", "sign", "floordiv", "mod", "fmod", "search", *COMPARISONS))
"""Functions that jump."""
REWRITES: Mapping[str, tuple[str, str, Callable[[Space], Space], tuple[str, ...], str]] = {}
"""Parameter -> its plain choice, its rewritten choice, the rewrite, the causes it addresses, what it decides."""


def parameters(space: Space) -> tuple[Parameter, ...]:
    """Parameters for the rewrites that change this space."""
    return tuple(
        Parameter(name, plain, (plain, changed), causes, why)
        for name, (plain, changed, rewrite, causes, why) in REWRITES.items()
        if rewrite(space) is not space
    )


def applied(space: Space, params: Mapping[str, Any]) -> Space:
    """The space with the rewrites that `params` choose."""
    for name, (_, changed, rewrite, _, _) in REWRITES.items():
        if params.get(name) == changed:
            space = rewrite(space)
    return space


def is_per_row(space: Space, e: Expr) -> bool:
    """Whether `e` has one value per row and depends on a reduction."""
    results = {r.name for r in space.reductions}
    nodes = set(walk(e))
    named = {n.value for n in nodes if n.op == "local"}
    return bool(named) and named <= results and not any(index(d) in nodes for d in space.inner)


def _below_steps(space: Space) -> set[Expr]:
    """Everything whose last bit may decide which way a step function goes."""
    found: set[Expr] = set()
    stack = [e for root in space.expressions() for e in walk(root) if e.op in STEPS or _is_rounding(e)]
    while stack:
        for node in walk(stack.pop()):
            if node not in found:
                found.add(node)
                if node.op == "local" and node.value in space.kept:
                    stack.append(space.kept[node.value])
    return found


def _is_rounding(e: Expr) -> bool:
    return e.op == "cast" and e.dtype not in FLOATS and e.args[0].dtype in FLOATS


def reciprocal(space: Space) -> Space:
    """Divisions by a value per row as products with its reciprocal; the space itself when there are none.

    Not below a rounding or a comparison, where a last bit becomes a whole step.
    """
    found, exact = False, _below_steps(space)

    def change(e: Expr) -> Expr | None:
        nonlocal found
        if (
            e.op != "div"
            or e in exact
            or e.dtype not in FLOATS
            or not is_per_row(space, e.args[1])
            or _constant_in_row(space, e.args[0])
        ):
            return None
        found = True
        return call("mul", e.args[0], call("reciprocal", e.args[1]))

    new = space.change(lambda e: substitute(e, change))
    return new if found else space


def _constant_in_row(space: Space, e: Expr) -> bool:
    nodes = set(walk(e))
    kept = any(n.op == "local" and n.value in space.kept for n in nodes)
    return not kept and not any(index(d) in nodes for d in space.inner)


def one_pass(space: Space) -> Space:
    """Sums of squared deviations from the row's own mean, shifted; the space itself when there are none."""
    count = space.size(space.inner)
    for r in space.reductions if space.inner else ():  # rows of one element have nothing to shift
        source = _mean_of(space, r, count)
        if source is None or count is None:
            continue
        total, mean, x = source
        shift = _near_mean(space, x)
        d = x - shift
        shifted = Reduction(f"{r.name}_shifted", "sum", call("mul", d, d), r.dtype, total.stage)
        gap = mean - shift
        local = Expr("local", (), r.dtype, r.name)
        value = call("max", Expr("local", (), r.dtype, shifted.name) - float(count) * (gap * gap), const(0.0, r.dtype))
        kept_out = [q for q in space.reductions if q is not r]
        place = kept_out.index(total) + 1
        new = dataclasses.replace(space, reductions=(*kept_out[:place], shifted, *kept_out[place:]))
        new = new.change(lambda e, local=local, value=value: substitute(e, lambda n: value if n is local else None))  # type: ignore[misc]
        return one_pass(_staged(new))
    return space


def _mean_of(space: Space, r: Reduction, count: int | None) -> tuple[Reduction, Expr, Expr] | None:
    """For sum((x - m)^2) with m the mean of x: the reduction that sums x, m and x."""
    if r.op != "sum" or r.dtype not in FLOATS or r.body.op != "mul" or r.body.args[0] is not r.body.args[1]:
        return None
    d = r.body.args[0]
    if d.op != "sub" or not count:
        return None
    x, mean = d.args
    if mean.op not in ("div", "mul") or mean.args[0].op != "local" or mean.args[1].op != "const":
        return None
    total = next((q for q in space.reductions if q.name == mean.args[0].value and q.op == "sum" and q.body is x), None)
    factor = float(mean.args[1].value) if mean.op == "mul" else 1.0 / float(mean.args[1].value)
    return (total, mean, x) if total is not None and math.isclose(factor * count, 1.0, rel_tol=1e-6) else None


def _near_mean(space: Space, x: Expr) -> Expr:
    """The mean of four elements spread over the row: an outlier among them moves it by a quarter only."""
    last = space.inner[-1]
    size = int(space.shape[last])
    places = [size * k // 4 for k in range(4)] if size >= 4 else [0]
    total = simplify(_at(space, x, last, places[0]), space.ranges)
    for place in places[1:]:
        total = total + simplify(_at(space, x, last, place), space.ranges)
    return total * (1.0 / len(places))


def _at(space: Space, e: Expr, last: int, place: int) -> Expr:
    """`e` at a point of the row, kept values written out."""
    fixed = {index(d): const(place if d == last else 0, "int64") for d in space.inner}

    def change(n: Expr) -> Expr | None:
        if n.op == "local" and n.value in space.kept:
            return _at(space, space.kept[n.value], last, place)
        return fixed.get(n)

    return substitute(e, change)


def _staged(space: Space) -> Space:
    """Stages anew after a rewrite."""
    stages: dict[str, int] = {}
    found = []
    for r in space.reductions:
        needs = [stages[n] for n in locals_of(r.body, space.kept) if n in stages]
        stages[r.name] = 1 + max(needs, default=-1)
        found.append(dataclasses.replace(r, stage=stages[r.name]))
    return dataclasses.replace(space, reductions=tuple(found))


REWRITES = {
    "division": ("exact", "reciprocal", reciprocal, ("division",), "how a row is divided by one value"),
    "variance": ("two_pass", "one_pass", one_pass, ("memory_bound", "reduction_chain"), "passes for mean and variance"),
}
