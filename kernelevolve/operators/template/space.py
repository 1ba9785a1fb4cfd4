"""The loop nest that pointwise operations and reductions of one kernel share, and what is computed at each level.

Every reduction of the group runs over the same dimensions of the same space; what it yields is one value per point
of the remaining dimensions ("per row"), and every output is written either once per point or once per row. Neighbouring
dimensions that all accesses cross with one stride are merged, so that an elementwise kernel has one loop.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence

from kernelevolve.operators.template.affine import (
    Range,
    affine,
    identity,
    ranges_of,
    ravel,
    simplify,
    strides_of,
    unravel,
)
from kernelevolve.operators.template.expr import Expr, call, const, index, substitute, walk
from kernelevolve.operators.template.fuse import Region
from kernelevolve.operators.template.graph import Dim, Graph, Op

COSTLY = frozenset(
    (
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sigmoid",
        "erf",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "pow",
        "atan2",
        "fmod",
        "search",
    )
)
"""Functions that cost more than a read from the first-level cache."""


@dataclasses.dataclass(frozen=True)
class Reduction:
    """One value per row: `op` over `body` at all points of the row."""

    name: str
    op: str
    body: Expr
    dtype: str
    stage: int
    """0 for one that needs no other reduction, else one more than those it needs."""


@dataclasses.dataclass(frozen=True)
class Store:
    """`value` goes to flat `offset` of tensor `name`; once per point, or once per row."""

    name: str
    offset: Expr
    value: Expr
    per_row: bool


@dataclasses.dataclass(frozen=True)
class Space:
    """A loop nest. Expressions hold `element`, `index` (of this nest) and `local` (no arguments)."""

    shape: tuple[Dim, ...]
    reduced: tuple[bool, ...]
    reductions: tuple[Reduction, ...]
    stores: tuple[Store, ...]
    kept: Mapping[str, Expr]
    """Values per point that several stages use and that are kept in a buffer, with their definitions."""

    @functools.cached_property
    def ranges(self) -> dict[int, Range]:
        """Range of every index."""
        return ranges_of(self.shape)

    @property
    def outer(self) -> tuple[int, ...]:
        """Dimensions that are not reduced, as negative numbers."""
        return tuple(d - len(self.shape) for d, r in enumerate(self.reduced) if not r)

    @property
    def inner(self) -> tuple[int, ...]:
        """Reduced dimensions, as negative numbers."""
        return tuple(d - len(self.shape) for d, r in enumerate(self.reduced) if r)

    def size(self, dims: Sequence[int]) -> int | None:
        """Number of points along dimensions; None when a size is known only at run time."""
        sizes = [self.shape[d] for d in dims]
        return None if any(isinstance(n, str) for n in sizes) else math.prod(int(n) for n in sizes)

    def expressions(self) -> tuple[Expr, ...]:
        """All that is computed."""
        return (*(r.body for r in self.reductions), *self.kept.values(), *(s.value for s in self.stores))

    def change(self, function: Callable[[Expr], Expr]) -> Space:
        """The same with every expression changed."""
        return dataclasses.replace(
            self,
            reductions=tuple(dataclasses.replace(r, body=function(r.body)) for r in self.reductions),
            stores=tuple(
                dataclasses.replace(s, offset=function(s.offset), value=function(s.value)) for s in self.stores
            ),
            kept={name: function(e) for name, e in self.kept.items()},
        )


def build(graph: Graph, ops: Sequence[str], outputs: Collection[str], keep: Collection[str] = ()) -> Space:
    """The space of a group of pointwise and reduce operations.

    Raises ValueError when they do not share one.
    """
    found = [graph.op(name) for name in ops]
    reduces = [op for op in found if op.kind == "reduce"]
    if any(op.kind not in ("pointwise", "reduce") for op in found):
        raise ValueError("only pointwise operations and reductions share loops")
    if not outputs:
        raise ValueError("a kernel needs an output")
    shape, reduced = _shape(graph, reduces, outputs)
    return _Frame(graph, ops, shape, reduced, keep).space(outputs)


def locals_of(e: Expr, kept: Mapping[str, Expr]) -> set[str]:
    """Local values that `e` uses, those behind kept ones included."""
    found: set[str] = set()
    stack = [e]
    while stack:
        for node in walk(stack.pop()):
            if node.op == "local" and node.value not in found:
                found.add(node.value)
                stack += [kept[node.value]] if node.value in kept else []
    return found


def _shape(graph: Graph, reduces: Sequence[Op], outputs: Collection[str]) -> tuple[tuple[Dim, ...], tuple[bool, ...]]:
    if reduces:
        main = max(reduces, key=lambda op: graph.values[op.inputs[0]].numel or 0)
        shape = graph.values[main.inputs[0]].shape
        return shape, tuple(d in main.attrs["dims"] and n != 1 for d, n in enumerate(shape))
    shapes = [graph.values[name].shape for name in outputs]
    best = max(shapes, key=lambda s: (len(_squeezed(s)), len(s)))
    return best, (False,) * len(best)


def _squeezed(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(n for n in shape if n != 1)


class _Frame:
    """Reads a group's values in terms of one loop nest."""

    def __init__(
        self, graph: Graph, ops: Sequence[str], shape: tuple[Dim, ...], reduced: tuple[bool, ...], keep: Collection[str]
    ) -> None:
        self.graph, self.ops, self.shape, self.reduced = graph, ops, shape, reduced
        self.ranges = ranges_of(shape)
        self.keep = tuple(name for name in ops if name in keep)
        self.reduces = [graph.op(n) for n in ops if graph.op(n).kind == "reduce"]
        self.results = frozenset(op.outputs[0] for op in self.reduces)
        self.region = Region(graph, ops, stops=[*self.results, *self.keep])
        self.origin = identity(len(shape))
        self.row_origin = tuple(const(0, "int64") if r else p for p, r in zip(self.origin, reduced, strict=True))

    def space(self, outputs: Collection[str]) -> Space:
        kept: dict[str, Expr] = {}
        for name in self.keep:
            inside = Region(self.graph, self.ops, stops=[*self.results, *(n for n in self.keep if n != name)])
            kept[name] = self._settled(inside.read(name, self._position(self.graph.values[name].shape, False)))
        reductions: list[Reduction] = []
        stages: dict[str, int] = {}
        for op in self.reduces:
            for r in self._reduction(op, stages, kept):
                reductions.append(r)
                stages[r.name] = r.stage
        stores = tuple(self._store(name) for name in outputs)
        return merged(Space(self.shape, self.reduced, tuple(reductions), stores, kept))

    def _position(self, shape: tuple[Dim, ...], per_row: bool) -> tuple[Expr, ...]:
        """Where in a tensor of `shape` the point (or row) of the nest is."""
        origin = self.row_origin if per_row else self.origin
        own = tuple(n for n, r in zip(self.shape, self.reduced, strict=True) if not (per_row and r))
        kept = [p for p, n, r in zip(origin, self.shape, self.reduced, strict=True) if n != 1 and not (per_row and r)]
        if _squeezed(shape) == _squeezed(own):
            rest = iter(kept)
            return tuple(const(0, "int64") if n == 1 else next(rest) for n in shape)
        positions = [p for p, r in zip(origin, self.reduced, strict=True) if not (per_row and r)]
        flat = ravel(positions, strides_of(own))
        return tuple(simplify(p, self.ranges) for p in unravel(flat, shape))

    def _settled(self, e: Expr) -> Expr:
        """Simplified, with locals at the nest's own position; ValueError when one is needed elsewhere."""

        def change(node: Expr) -> Expr | None:
            if node.op != "local" or not node.args:
                return None
            per_row = node.value in self.results
            shape = self.graph.values[node.value].shape
            if per_row and len(shape) != len(self.shape):
                wanted = self._position(shape, True)
            else:
                wanted = self._position(shape, per_row)
            if tuple(simplify(a, self.ranges) for a in node.args) != tuple(simplify(w, self.ranges) for w in wanted):
                raise ValueError(f"{node.value} is needed at another position than the one at hand")
            return Expr("local", (), node.dtype, node.value)

        return simplify(substitute(e, change), self.ranges)

    def _reduction(self, op: Op, stages: Mapping[str, int], kept: Mapping[str, Expr]) -> list[Reduction]:
        shape = self.graph.values[op.inputs[0]].shape
        dims = op.attrs["dims"]
        flags = tuple(d in dims for d, n in enumerate(shape) if n != 1)
        own = tuple(r for r, n in zip(self.reduced, self.shape, strict=True) if n != 1)
        if _squeezed(shape) != _squeezed(self.shape) or flags != own:
            raise ValueError("reductions over different spaces")
        name, kind = op.outputs[0], op.attrs["op"]
        body = self._settled(self.region.read(op.inputs[0], self._position(shape, False)))
        needs = [n for n in locals_of(body, kept) if n in self.results]
        stage = 1 + max((stages[n] for n in needs), default=-1)
        if not kind.startswith("arg"):
            return [Reduction(name, kind, body, self.graph.values[name].dtype, stage)]
        if len([d for d in dims if shape[d] != 1]) > 1:
            raise ValueError("argmax over several dimensions")
        best = f"{name}_best"
        top = Expr("local", (), body.dtype, best)
        size = next((shape[d] for d in dims), 1)
        here = (
            call("or", call("eq", body, top), call("isnan", body))
            if body.dtype.startswith("float")
            else call("eq", body, top)
        )
        place = next((index(d - len(self.shape)) for d, r in enumerate(self.reduced) if r), const(0, "int64"))
        found = call("where", here, place, const(int(size) - 1, "int64"))
        return [Reduction(best, kind[3:], body, body.dtype, stage), Reduction(name, "min", found, "int64", stage + 1)]

    def _store(self, name: str) -> Store:
        value = self.graph.values[name]
        rows = tuple(1 if r else n for n, r in zip(self.shape, self.reduced, strict=True))
        squeezed = _squeezed(value.shape)
        if name in self.results:
            per_row = True
        elif squeezed == _squeezed(self.shape):
            per_row = False
        elif squeezed == _squeezed(rows):
            per_row = any(self.reduced)
        elif value.numel is not None and value.numel == _numel(self.shape):
            per_row = False
        elif value.numel is not None and value.numel == _numel(rows):
            per_row = True
        else:
            raise ValueError(f"{name} has neither an element per point nor one per row")
        position = self._position(value.shape, per_row)
        body = self._settled(self.region.read(name, position))
        offset = simplify(ravel(position, strides_of(value.shape)), self.ranges)
        if per_row and any(n.op == "index" and self.reduced[n.value] for n in walk(body)):
            raise ValueError(f"{name} varies inside a row")
        return Store(name, offset, body, per_row)


def _numel(shape: Sequence[Dim]) -> int | None:
    return None if any(isinstance(n, str) for n in shape) else math.prod(int(n) for n in shape)


def candidates_to_keep(graph: Graph, ops: Sequence[str], outputs: Collection[str]) -> dict[str, bool]:
    """Values per point that more than one stage uses, each with whether computing it again is costly."""
    plain = build(graph, ops, outputs)
    full = [
        name
        for name in ops
        if graph.op(name).kind == "pointwise"
        and _squeezed(graph.values[name].shape) == _squeezed(_original(graph, ops, outputs))
    ]
    if not plain.reductions or not full:
        return {}
    found = {}
    for name in full:
        try:
            space = build(graph, ops, outputs, keep=[name])
        except ValueError:
            continue
        uses = {r.stage for r in space.reductions if _uses(r.body, name)}
        stores = any(_uses(s.value, name) for s in space.stores if not s.per_row)
        if len(uses) + stores > 1 and not all(n.op in ("element", "index", "const") for n in walk(space.kept[name])):
            found[name] = any(n.op in COSTLY for n in walk(space.kept[name]))
    return found


def _original(graph: Graph, ops: Sequence[str], outputs: Collection[str]) -> tuple[Dim, ...]:
    return _shape(graph, [graph.op(n) for n in ops if graph.op(n).kind == "reduce"], outputs)[0]


def _uses(e: Expr, name: str) -> bool:
    return any(n.op == "local" and n.value == name for n in walk(e))


def merged(space: Space) -> Space:
    """Without dimensions of size 1, and with neighbours merged wherever every access allows it."""
    k = len(space.shape) - 1
    while k >= 0:
        if space.shape[k] == 1:
            space = _drop(space, k)
        k = min(k, len(space.shape)) - 1
    k = len(space.shape) - 2
    while k >= 0:
        together = _merge(space, k)
        if together is not None:
            space = together
        k -= 1
    return space


def _drop(space: Space, k: int) -> Space:
    rank = len(space.shape)

    def change(node: Expr) -> Expr | None:
        if node.op != "index":
            return None
        d = node.value + rank
        return const(0, "int64") if d == k else index(node.value + 1) if d < k else None

    new = space.change(lambda e: substitute(e, change))
    shape = (*space.shape[:k], *space.shape[k + 1 :])
    result = dataclasses.replace(new, shape=shape, reduced=(*space.reduced[:k], *space.reduced[k + 1 :]))
    return result.change(lambda e: simplify(e, result.ranges))


def _merge(space: Space, k: int) -> Space | None:
    """Merge dimension k with k + 1, or None."""
    size, rank = space.shape[k + 1], len(space.shape)
    first, second = index(k - rank), index(k + 1 - rank)
    if space.reduced[k] != space.reduced[k + 1] or not isinstance(size, int) or isinstance(space.shape[k], str):
        return None

    def change(node: Expr) -> Expr | None:
        if node.op == "index" and node.value < second.value:
            return index(node.value + 1)
        return None

    def position(e: Expr) -> Expr:
        a = affine(e, space.ranges)
        outer, inner = a.terms.pop(first, 0), a.terms.get(second, 0)
        if outer != inner * size or any(
            n in (first, second) for atom in a.terms if atom is not second for n in walk(atom)
        ):
            raise ValueError
        return substitute(a.expr(), change)

    def expression(e: Expr) -> Expr:
        done: dict[Expr, Expr] = {}
        for node in walk(e):
            if node.op == "element":
                done[node] = (
                    node.with_args((position(node.args[0]),)) if not _data(node.args[0]) else _other(node, done)
                )
            else:
                done[node] = _other(node, done)
        return done[e]

    def _other(node: Expr, done: Mapping[Expr, Expr]) -> Expr:
        if node.op == "index" and node in (first, second):
            return node  # fine below an affine offset, which `position` has replaced; refused elsewhere
        return node.with_args(tuple(done[a] for a in node.args)) if node.args else change(node) or node

    def checked(e: Expr) -> Expr:
        for node in _outside_offsets(e):
            if node in (first, second):
                raise ValueError
        return expression(e)

    try:
        new = dataclasses.replace(
            space,
            reductions=tuple(dataclasses.replace(r, body=checked(r.body)) for r in space.reductions),
            stores=tuple(
                dataclasses.replace(
                    s,
                    offset=position(s.offset)
                    if not s.per_row or not space.reduced[k]
                    else substitute(s.offset, change),
                    value=checked(s.value),
                )
                for s in space.stores
            ),
            kept={name: checked(e) for name, e in space.kept.items()},
        )
    except ValueError:
        return None
    shape = (*space.shape[:k], int(space.shape[k]) * size, *space.shape[k + 2 :])
    flags = (*space.reduced[:k], *space.reduced[k + 1 :])
    result = dataclasses.replace(new, shape=shape, reduced=flags)
    return result.change(lambda e: simplify(e, result.ranges))


def _data(offset: Expr) -> bool:
    """Whether a position depends on data."""
    return any(n.op in ("element", "local", "search") for n in walk(offset))


def _outside_offsets(e: Expr) -> list[Expr]:
    """Nodes that are not part of a plain affine offset."""
    found, stack, seen = [], [e], set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        found.append(node)
        if node.op != "element" or _data(node.args[0]):
            stack.extend(node.args)
    return found
