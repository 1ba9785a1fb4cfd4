"""Scalar expressions: what one element of an output is, in terms of elements of inputs. No language in here.

A pointwise operation is one `Expr`. Fusion is substitution (`fuse.Region.read`), so the same generator serves as the
body of a loop, the prologue of a reduction and the epilogue of a matrix product, in C++ and in Triton (`scalar.py`).

Positions are counted from the last dimension: `index(-1)` is the position along the innermost one. Broadcasting
aligns shapes at the right as in PyTorch, so an expression may be read at any higher rank without change.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")

UNARY = (
    "neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
    "tan", "tanh", "sigmoid", "erf", "asin", "acos", "atan", "sinh", "cosh", "floor", "ceil", "round", "trunc", "sign",
    "not", "isnan", "isinf",
)  # fmt: skip
BINARY = (
    "add", "sub", "mul", "div", "floordiv", "mod", "pow", "max", "min", "lt", "le", "gt", "ge", "eq", "ne", "and", "or",
    "xor", "shl", "shr", "atan2", "fmod",
)  # fmt: skip
TERNARY = ("where", "fma", "clamp")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne", "not", "isnan", "isinf")
"""Functions whose answer is a bool. `max` and `min` propagate NaN, as torch's do."""


class Expr:
    """A node of an expression graph. Equal nodes are one object, so shared parts are computed once and `==` is `is`.

    op: "arg", "load", "element", "local", "index", "const", "cast", "search", or one of UNARY, BINARY, TERNARY.
    value: arg, load, element, local, search: the tensor's name; index: the dimension (negative); const: the number.
    right: search only: torch.bucketize's `right`.

    `element` and `local` come from `fuse.Region.read`: the element of a tensor in memory at a flat offset (one
    integer argument), and the value of an operation inside the kernel at a position.
    """

    __slots__ = ("__weakref__", "args", "dtype", "op", "right", "value")
    op: str
    args: tuple[Expr, ...]
    dtype: str
    value: Any
    right: bool
    _known: ClassVar[weakref.WeakValueDictionary[Any, Expr]] = weakref.WeakValueDictionary()

    def __new__(
        cls, op: str, args: tuple[Expr, ...] = (), dtype: str = "float32", value: Any = None, right: bool = False
    ) -> Expr:
        """The node with these contents: an existing one when there is one."""
        # repr tells 0.0 from -0.0 and 1 from True, and makes NaN equal to itself.
        key = (op, args, dtype, repr(value), right)
        known = cls._known.get(key)
        if known is None:
            known = object.__new__(cls)
            for name, content in (("op", op), ("args", args), ("dtype", dtype), ("value", value), ("right", right)):
                object.__setattr__(known, name, content)
            known = cls._known.setdefault(key, known)
        return known

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("an Expr is shared by its readers and cannot be changed; build another")

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __str__(self) -> str:
        if self.op in ("arg", "index", "const"):
            return str(self.value) if self.op != "index" else f"i[{self.value}]"
        head = f"{self.op}[{self.value}]" if self.value is not None else self.op
        return f"{head}({', '.join(map(str, self.args))})"

    def _with(self, op: str, other: Expr | float, swap: bool = False) -> Expr:
        right = other if isinstance(other, Expr) else const(other, self.dtype)
        return call(op, right, self) if swap else call(op, self, right)

    def __add__(self, other: Expr | float) -> Expr:
        return self._with("add", other)

    def __radd__(self, other: Expr | float) -> Expr:
        return self._with("add", other, swap=True)

    def __sub__(self, other: Expr | float) -> Expr:
        return self._with("sub", other)

    def __rsub__(self, other: Expr | float) -> Expr:
        return self._with("sub", other, swap=True)

    def __mul__(self, other: Expr | float) -> Expr:
        return self._with("mul", other)

    def __rmul__(self, other: Expr | float) -> Expr:
        return self._with("mul", other, swap=True)

    def __truediv__(self, other: Expr | float) -> Expr:
        return self._with("div", other)

    def __rtruediv__(self, other: Expr | float) -> Expr:
        return self._with("div", other, swap=True)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def with_args(self, args: tuple[Expr, ...]) -> Expr:
        """The same operation on other arguments."""
        return self if args == self.args else Expr(self.op, args, self.dtype, self.value, self.right)


def arg(name: str, dtype: str) -> Expr:
    """The element of `name` at the current position, by broadcast."""
    return Expr("arg", (), dtype, name)


def load(name: str, dtype: str, *position: Expr) -> Expr:
    """The element of `name` at an explicit position, one integer expression per dimension; in bounds by contract."""
    return Expr("load", position, dtype, name)


def index(dim: int) -> Expr:
    """The position along `dim` (negative) of the output, int64."""
    return Expr("index", (), "int64", dim)


def const(number: bool | int | float, dtype: str) -> Expr:
    """A number."""
    return Expr("const", (), dtype, number)


def search(boundaries: str, x: Expr, *, right: bool) -> Expr:
    """How many elements of the sorted 1-D tensor `boundaries` are < x (right=False) or <= x (right=True); int64.

    For NaN that is all of them, as in torch.
    """
    return Expr("search", (x,), "int64", boundaries, right)


def cast(e: Expr, dtype: str) -> Expr:
    """`e` converted as `Tensor.to` does."""
    return e if e.dtype == dtype else Expr("cast", (e,), dtype)


def call(op: str, *args: Expr, dtype: str | None = None) -> Expr:
    """A function of UNARY, BINARY or TERNARY; the arguments' dtypes must already agree (see `promote`)."""
    if dtype is None:
        dtype = "bool" if op in COMPARISONS else args[-1].dtype
    return Expr(op, args, dtype)


def promote(*exprs: Expr, dtype: str) -> tuple[Expr, ...]:
    """Every expression cast to `dtype`."""
    return tuple(cast(e, dtype) for e in exprs)


def walk(*roots: Expr) -> Iterator[Expr]:
    """Every node once, leaves first."""
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        e, ready = stack.pop()
        if ready:
            yield e
        elif e not in seen:
            seen.add(e)
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(e.args) if a not in seen)


def reads(e: Expr) -> tuple[str, ...]:
    """Names of the tensors that an expression reads, in order of first use."""
    seen: dict[str, None] = {}
    for n in walk(e):
        if n.op in ("arg", "load", "element", "local", "search"):
            seen.setdefault(n.value)
    return tuple(seen)


def substitute(e: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """`e` with every node for which `change` answers replaced by the answer (leaves first; shared parts once)."""
    done: dict[Expr, Expr] = {}
    for node in walk(e):
        new = node.with_args(tuple(done[a] for a in node.args))
        answer = change(new)
        done[node] = new if answer is None else answer
    return done[e]
