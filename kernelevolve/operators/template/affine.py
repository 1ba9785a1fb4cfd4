"""Integer positions: simplify index arithmetic until it is a sum of loop indices wherever that is possible.

A reshape read through another reshape is divisions and remainders; with the ranges of the indices known, most of
them vanish: (i*256 + j) / 256 is i when 0 <= j < 256. What remains is exact for all integers (floor division).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelevolve.operators.template.expr import COMPARISONS, Expr, const, index, substitute, walk
from kernelevolve.operators.template.graph import Dim

Range = tuple[int, int]
"""Lowest and highest value, both included."""
UNBOUNDED = 1 << 62


class Affine:
    """constant + sum of coefficient * atom; an atom is an index or an integer expression that is no sum."""

    def __init__(self, terms: Mapping[Expr, int], constant: int) -> None:
        self.terms = {atom: c for atom, c in terms.items() if c}
        self.constant = constant

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for atom, c in other.terms.items():
            terms[atom] = terms.get(atom, 0) + c
        return Affine(terms, self.constant + other.constant)

    def scaled(self, factor: int) -> Affine:
        """Every coefficient times `factor`."""
        return Affine({atom: c * factor for atom, c in self.terms.items()}, self.constant * factor)

    def range(self, ranges: Mapping[int, Range]) -> Range:
        """Bounds of the value."""
        low = high = self.constant
        for atom, c in self.terms.items():
            a, b = (c * x for x in atom_range(atom, ranges))
            low, high = low + min(a, b), high + max(a, b)
        return max(low, -UNBOUNDED), min(high, UNBOUNDED)

    def expr(self) -> Expr:
        """As an expression: outermost index first, the constant last."""
        total: Expr | None = None
        for atom in sorted(self.terms, key=_order):
            c = self.terms[atom]
            term = atom if abs(c) == 1 else Expr("mul", (atom, const(abs(c), "int64")), "int64")
            if total is None:
                total = term if c > 0 else Expr("neg", (term,), "int64")
            else:
                total = Expr("add" if c > 0 else "sub", (total, term), "int64")
        if total is None:
            return const(self.constant, "int64")
        if self.constant:
            number = const(abs(self.constant), "int64")
            total = Expr("add" if self.constant > 0 else "sub", (total, number), "int64")
        return total


def _order(atom: Expr) -> tuple[int, int, str]:
    return (0, atom.value, "") if atom.op == "index" else (1, 0, str(atom))


def affine(e: Expr, ranges: Mapping[int, Range]) -> Affine:
    """The position `e` as a sum."""
    if e.op == "const":
        return Affine({}, int(e.value))
    if e.op == "index":
        low, high = ranges.get(e.value, (0, UNBOUNDED))
        return Affine({}, low) if low == high else Affine({e: 1}, 0)
    if e.dtype == "int64" and e.op in ("add", "sub"):
        a, b = (affine(x, ranges) for x in e.args)
        return _recombined(a + (b if e.op == "add" else b.scaled(-1)), ranges)
    if e.dtype == "int64" and e.op == "neg":
        return affine(e.args[0], ranges).scaled(-1)
    if e.dtype == "int64" and e.op in ("mul", "floordiv", "mod"):
        a, b = (affine(x, ranges) for x in e.args)
        if e.op == "mul" and not a.terms:
            a, b = b, a
        if not b.terms:
            if e.op == "mul":
                return a.scaled(b.constant)
            if b.constant > 0:
                return divide(a, b.constant, ranges) if e.op == "floordiv" else remainder(a, b.constant, ranges)
    return Affine({e: 1}, 0)


def _recombined(a: Affine, ranges: Mapping[int, Range]) -> Affine:
    """With c*k*(x / k) + c*(x mod k) written as c*x: what is left of a position unravelled and ravelled again."""
    for atom, c in a.terms.items():
        if atom.op == "mod" and atom.args[1].op == "const" and atom.args[1].value > 0:
            x, k = atom.args[0], int(atom.args[1].value)
            terms = divide(affine(x, ranges), k, ranges).terms
            whole = next(iter(terms)) if len(terms) == 1 else None
            if whole is not None and terms[whole] == 1 and a.terms.get(whole) == c * k:
                rest = Affine({t: n for t, n in a.terms.items() if t not in (atom, whole)}, a.constant)
                return _recombined(rest + affine(x, ranges).scaled(c), ranges)
    return a


def divide(a: Affine, k: int, ranges: Mapping[int, Range]) -> Affine:
    """floor(a / k)."""
    if len(a.terms) == 1 and not a.constant:
        ((atom, c),) = a.terms.items()
        if c == 1 and atom.op == "floordiv" and atom.args[1].op == "const" and atom.args[1].value > 0:
            return divide(affine(atom.args[0], ranges), k * int(atom.args[1].value), ranges)
    whole, rest = _split(a, k)
    low, high = rest.range(ranges)
    if low >= 0 and high < k:
        return whole
    for g in _factors(rest, k):
        coarse, fine = _split(rest, g)
        low, high = fine.range(ranges)
        if low >= 0 and high < g:
            return whole + divide(coarse, k // g, ranges)
    return whole + Affine({Expr("floordiv", (rest.expr(), const(k, "int64")), "int64"): 1}, 0)


def remainder(a: Affine, k: int, ranges: Mapping[int, Range]) -> Affine:
    """The remainder of a modulo k, in [0, k)."""
    _, rest = _split(a, k)
    low, high = rest.range(ranges)
    if low >= 0 and high < k:
        return rest
    for g in _factors(rest, k):
        coarse, fine = _split(rest, g)
        low, high = fine.range(ranges)
        if low >= 0 and high < g:
            return remainder(coarse, k // g, ranges).scaled(g) + fine
    return Affine({Expr("mod", (rest.expr(), const(k, "int64")), "int64"): 1}, 0)


def _split(a: Affine, k: int) -> tuple[Affine, Affine]:
    """Split: a = k * whole + rest, with the multiples of k in `whole`."""
    whole = {atom: c // k for atom, c in a.terms.items() if c % k == 0}
    rest = {atom: c for atom, c in a.terms.items() if c % k}
    return Affine(whole, a.constant // k), Affine(rest, a.constant % k)


def _factors(rest: Affine, k: int) -> list[int]:
    """Proper common factors of k and of some coefficient, largest first."""
    return sorted({math.gcd(c, k) for c in rest.terms.values()} - {1, k}, reverse=True)


def atom_range(e: Expr, ranges: Mapping[int, Range]) -> Range:
    """Bounds of an integer expression that is no sum."""
    if e.op == "index":
        return ranges.get(e.value, (0, UNBOUNDED))
    if e.op == "mod" and e.args[1].op == "const" and e.args[1].value > 0:
        return 0, int(e.args[1].value) - 1
    if e.op == "floordiv" and e.args[1].op == "const" and e.args[1].value > 0:
        low, high = affine(e.args[0], ranges).range(ranges)
        return low // int(e.args[1].value), high // int(e.args[1].value)
    if e.op in ("max", "min"):
        (a, b), (c, d) = (affine(x, ranges).range(ranges) for x in e.args)
        return (max(a, c), max(b, d)) if e.op == "max" else (min(a, c), min(b, d))
    if e.dtype == "bool":
        return 0, 1
    return -UNBOUNDED, UNBOUNDED


def simplify(e: Expr, ranges: Mapping[int, Range]) -> Expr:
    """`e` with integer arithmetic reduced and comparisons, limits and choices decided where the ranges decide them."""

    def change(node: Expr) -> Expr | None:
        if node.op == "where" and node.args[0].op == "const":
            return node.args[1] if node.args[0].value else node.args[2]
        if node.op == "where" and node.args[1] is node.args[2]:
            return node.args[1]
        if node.op in ("and", "or") and any(a.op == "const" for a in node.args):
            fixed, other = sorted(node.args, key=lambda a: a.op != "const")
            return other if bool(fixed.value) == (node.op == "and") else fixed
        if node.op == "not" and node.args[0].op == "const":
            return const(not node.args[0].value, "bool")
        if node.op in ("lt", "le", "gt", "ge", "eq", "ne") and node.args[0].dtype == "int64" and _computed(node):
            a, b = (affine(x, ranges) for x in node.args)
            return _decide(node.op, (a + b.scaled(-1)).range(ranges))
        if node.dtype != "int64" or node.op in COMPARISONS:
            return None
        if node.op in ("max", "min"):
            a, b = (affine(x, ranges) for x in node.args)
            low, high = (a + b.scaled(-1)).range(ranges)
            if low >= 0:
                return node.args[0 if node.op == "max" else 1]
            if high <= 0:
                return node.args[1 if node.op == "max" else 0]
            return None
        if node.op in ("index", "add", "sub", "neg", "mul", "floordiv", "mod") and _computed(node):
            return affine(node, ranges).expr()
        return None

    return substitute(e, change)


def _computed(node: Expr) -> bool:
    """Whether it is arithmetic on positions, and not on the data of integer tensors, which may wrap around."""
    return not any(n.op in ("arg", "load", "element", "local", "search", "cast") for n in walk(*node.args))


def _decide(op: str, difference: Range) -> Expr | None:
    low, high = difference
    yes, no = {
        "lt": (high < 0, low >= 0), "le": (high <= 0, low > 0), "gt": (low > 0, high <= 0), "ge": (low >= 0, high < 0),
        "eq": (low == high == 0, low > 0 or high < 0), "ne": (low > 0 or high < 0, low == high == 0),
    }[op]  # fmt: skip
    return const(True, "bool") if yes else const(False, "bool") if no else None


def ranges_of(shape: Sequence[Dim]) -> dict[int, Range]:
    """The range of every index of a loop nest over `shape`."""
    return {d - len(shape): (0, n - 1 if isinstance(n, int) else UNBOUNDED) for d, n in enumerate(shape)}


def strides_of(shape: Sequence[Dim]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements. Only the first size may be one known at run time.

    Raises ValueError for any other.
    """
    strides, step = [], 1
    for d in range(len(shape) - 1, -1, -1):
        strides.append(step)
        n = shape[d]
        if isinstance(n, int):
            step *= max(n, 1)
        elif d:
            raise ValueError(f"shape {tuple(shape)}: only the first size may be known at run time alone")
    return tuple(reversed(strides))


def ravel(position: Sequence[Expr], strides: Sequence[int], offset: int = 0) -> Expr:
    """The offset + sum of position * stride."""
    total = const(offset, "int64") if offset else None
    for p, s in zip(position, strides, strict=True):
        if s and not (p.op == "const" and p.value == 0):
            term = p if s == 1 else Expr("mul", (p, const(s, "int64")), "int64")
            total = term if total is None else Expr("add", (total, term), "int64")
    return const(0, "int64") if total is None else total


def unravel(flat: Expr, shape: Sequence[Dim]) -> tuple[Expr, ...]:
    """The position in a contiguous tensor of `shape` of the element at offset `flat`."""
    position = []
    for d, (n, s) in enumerate(zip(shape, strides_of(shape), strict=True)):
        p = flat if s == 1 else Expr("floordiv", (flat, const(s, "int64")), "int64")
        if n == 1:
            p = const(0, "int64")
        elif d and isinstance(n, int) and any(m != 1 for m in shape[:d]):
            p = Expr("mod", (p, const(n, "int64")), "int64")
        position.append(p)
    return tuple(position)


def identity(rank: int) -> tuple[Expr, ...]:
    """The position of the loop nest itself."""
    return tuple(index(d) for d in range(-rank, 0))
