"""From expressions to statements, in any language: a `Dialect` is a table of texts, a `Scope` one loop level.

Shared subexpressions become variables; what does not depend on an inner loop is written before it. A dialect's
entry for a function is a format string: {0}, {1} … are the arguments' texts, {t} the type's name.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar

from kernelevolve.operators.template.expr import Expr, walk

INLINE_DEPTH = 3
"""How deep an expression is nested in one statement before it becomes a variable."""

STEP = 40
"""Expressions deeper than twice this are written in steps of it."""


class Dialect(abc.ABC):
    """How a language spells types, numbers, functions and memory."""

    name: ClassVar[str]
    types: ClassVar[Mapping[str, str]]
    """torch's dtype name -> the type of a variable."""
    functions: ClassVar[Mapping[str, str]]
    """Format strings by function, or by "function.dtype" of the first argument where a dtype has its own."""

    @abc.abstractmethod
    def constant(self, e: Expr) -> str:
        """A number of its dtype."""

    @abc.abstractmethod
    def convert(self, text: str, source: str, target: str) -> str:
        """A conversion between dtypes, as `Tensor.to`."""

    @abc.abstractmethod
    def element(self, e: Expr, offset: str) -> str:
        """Read memory: the element of tensor `e.value` at flat `offset`."""

    @abc.abstractmethod
    def search(self, e: Expr, x: str) -> str:
        """A binary search."""

    @abc.abstractmethod
    def declare(self, name: str, dtype: str, text: str) -> str:
        """The statement that names a value."""

    def function(self, e: Expr, arguments: Iterable[str]) -> str:
        """A call of one of UNARY, BINARY, TERNARY."""
        dtype = e.args[-1].dtype if e.op == "where" else e.args[0].dtype
        form = self.functions.get(f"{e.op}.{dtype}") or self.functions.get(e.op)
        if form is None:
            raise NotImplementedError(f"{self.name} has no {e.op} of {dtype}")
        return form.format(*arguments, t=self.types[dtype])


class Scope:
    """Statements of one loop level. Expressions are written in the outermost scope that has all they need.

    Args:
        dialect: The language.
        parent: The enclosing scope.
        indices: Names of the loop variables that this level adds: dimension -> text.
        prefix: Start of the names of this level's variables.
    """

    def __init__(
        self, dialect: Dialect, parent: Scope | None = None, indices: Mapping[int, str] | None = None, prefix: str = "t"
    ) -> None:
        self.dialect, self.parent, self.prefix = dialect, parent, prefix
        self.indices = dict(indices or {})
        self.lines: list[str] = []
        self._names: dict[Expr, str] = {}
        self._uses: Counter[Expr] = Counter()
        self._home: dict[Expr, Scope] = {}
        self._numbers: list[int] = parent._numbers if parent else [0]

    def bind(self, e: Expr, text: str) -> None:
        """Let `e` be known here under `text`."""
        self._names[e] = text

    def known(self, e: Expr) -> str | None:
        """The text of an expression that has a name here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if e in scope._names:
                return scope._names[e]
            scope = scope.parent
        return None

    def expect(self, *roots: Expr) -> None:
        """Announce what will be written, so that shared parts are found."""
        for e in walk(*roots):
            self._uses.update(set(e.args))
        self._uses.update(roots)

    def value(self, e: Expr, depth: int = 0) -> str:
        """Text of `e`, with the statements it needs written before."""
        if depth == 0:
            self._prepare(e)
        known = self.known(e)
        if known is not None:
            return known
        if e.op == "const":
            return self.dialect.constant(e)
        home = self.home(e)
        shared = self._uses[e] > 1
        if home is not self and e.op != "index":
            home._uses.update({n: self._uses[n] for n in walk(e)})
            text = home.value(e)
            return home.name(e, text) if e.args and _costs(e) else text
        text = self._text(e, depth)
        if e.args and (shared or (depth >= INLINE_DEPTH and e.op not in ("element",) and e.dtype != "int64")):
            return self.name(e, text)
        return text

    def _prepare(self, root: Expr) -> None:
        """Name parts of a very deep expression from the leaves up, so that writing it does not recurse far."""
        heights: dict[Expr, int] = {}
        for e in walk(root):
            heights[e] = 1 + max((heights[a] for a in e.args), default=0)
        if heights[root] < 2 * STEP:
            return
        for e, height in heights.items():
            if self.known(e) is None and e.op not in ("index", "const", "local"):
                self.home(e)
                if height % STEP == 0:
                    self.value(e, INLINE_DEPTH)

    def name(self, e: Expr, text: str) -> str:
        """Give `e` a variable of this scope."""
        if text.isidentifier():
            self.bind(e, text)
            return text
        self._numbers[0] += 1
        variable = f"{self.prefix}{self._numbers[0]}"
        self.lines.append(self.dialect.declare(variable, e.dtype, text))
        self.bind(e, variable)
        return variable

    def home(self, e: Expr) -> Scope:
        """The outermost scope where everything that `e` needs is known."""
        if e in self._home:
            return self._home[e]
        if e in self._names or (e.op == "index" and e.value in self.indices):
            found = self
        elif e.op == "index" or e.op == "local":
            if self.parent is None:
                raise KeyError(f"{e} is not known in any loop")
            found = self.parent.home(e)
        elif not e.args:
            found = self._root()
        elif self.parent is not None and self.known(e) is not None:
            found = self.parent.home(e)
        else:
            found = max((self.home(a) for a in e.args), key=lambda s: s.level)
        self._home[e] = found
        return found

    @property
    def level(self) -> int:
        """Depth of nesting."""
        return 0 if self.parent is None else self.parent.level + 1

    def _root(self) -> Scope:
        return self if self.parent is None else self.parent._root()

    def _text(self, e: Expr, depth: int) -> str:
        if e.op == "index":
            home = self.home(e)
            return home.known(e) or home.indices[e.value]
        if e.op == "local":
            raise KeyError(f"{e} is read at a position that this kernel does not have at hand")
        arguments = [self.value(a, depth + 1) for a in e.args]
        if e.op == "element":
            return self.dialect.element(e, bare(arguments[0]))
        if e.op == "search":
            return self.dialect.search(e, arguments[0])
        if e.op == "cast":
            return self.dialect.convert(arguments[0], e.args[0].dtype, e.dtype)
        return self.dialect.function(e, arguments)


def _costs(e: Expr) -> bool:
    """Whether it is worth a variable outside a loop: anything that is computed or read."""
    return e.op not in ("index", "const")


def bare(text: str) -> str:
    """Without the outer brackets, when they match each other."""
    if not text.startswith("("):
        return text
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if k == len(text) - 1 else text
    return text
