"""What families with a structure of their own share: one anchor operation, pointwise operations before and after it.

Operations before the anchor are read through (`Region`) wherever the anchor reads its input; operations after it are
computed at each element of the anchor's output while that element is still in a register or in the first cache.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence

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
from kernelevolve.operators.template.cpp.dialect import STORAGE, Cpp, identifier
from kernelevolve.operators.template.expr import Expr, walk
from kernelevolve.operators.template.fuse import Region, readers, returned
from kernelevolve.operators.template.graph import Graph, Op
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.template import Kernel

WORDS = frozenset(
    [
        "a",
        "acc",
        "ahead",
        "area",
        "at",
        "b",
        "begin",
        "best",
        "block",
        "c",
        "cell",
        "ch",
        "channel",
        "chunk",
        "ci",
        "co",
        "column",
        "columns",
        "copy",
        "count",
        "counts",
        "depth",
        "end",
        "first",
        "from",
        "g",
        "group",
        "here",
        "i",
        "j",
        "j0",
        "k",
        "kept",
        "key",
        "keys",
        "kx",
        "ky",
        "l",
        "last",
        "later",
        "left",
        "left_copy",
        "length",
        "limit",
        "lines",
        "m",
        "m0",
        "m_end",
        "n",
        "n0",
        "n_end",
        "number",
        "o",
        "ordered",
        "p",
        "packed",
        "padded",
        "panel",
        "part",
        "passed",
        "piece",
        "pieces",
        "pixel",
        "place",
        "position",
        "r",
        "r0",
        "right",
        "row",
        "rows",
        "s",
        "scan",
        "sizes",
        "start",
        "starts",
        "step",
        "sum",
        "t",
        "tap",
        "threads",
        "tile",
        "to",
        "total",
        "totals",
        "v",
        "value",
        "w",
        "width",
        "x",
        "x0",
        "x_end",
        "x_first",
        "y",
    ]
)
"""Names that the families here give to their own variables; a tensor of the same name becomes `v_…`."""


def pointer(name: str) -> str:
    """The C++ parameter that points to value `name`."""
    text = identifier(name)
    return f"v_{text}" if text in WORDS or re.fullmatch(r"[a-z]\d+", text) else text


class AnchoredCpp(Cpp):
    """C++ inside these families: a tensor never hides a loop variable, and "$tile" is a variable of the kernel."""

    def element(self, e: Expr, offset: str) -> str:
        """A read."""
        if e.value.startswith("$"):
            return f"{e.value[1:]}[{offset}]"
        return super().element(Expr(e.op, e.args, e.dtype, pointer(e.value)), offset)

    def store(self, name: str, offset: str, text: str, dtype: str) -> str:
        """A write."""
        return super().store(pointer(name), offset, text, dtype)


CPP = AnchoredCpp()


@dataclasses.dataclass(frozen=True)
class Access:
    """Where an operand's elements are: `base[constant + sum of steps[dim] * index(dim)]`."""

    base: str
    constant: int
    steps: Mapping[int, int]

    def step(self, dim: int) -> int:
        """Elements between neighbours along an index; 0 when the operand does not depend on it."""
        return self.steps.get(dim, 0)


@dataclasses.dataclass(frozen=True)
class Store:
    """One element to write: output `name` at flat `offset` gets `value`."""

    name: str
    offset: Expr
    value: Expr


class Anchor:
    """One operation of `kinds` among pointwise ones.

    Raises ValueError when `ops` hold no such operation, several, or anything else than pointwise and views beside it.
    """

    def __init__(self, graph: Graph, ops: Sequence[str], kinds: Iterable[str]) -> None:
        self.graph, self.ops = graph, tuple(ops)
        others = [graph.op(name) for name in ops if graph.op(name).kind not in ("pointwise", "view")]
        if len(others) != 1 or others[0].kind not in kinds:
            raise ValueError(
                f"expected one of {', '.join(kinds)} among pointwise operations, got {[o.kind for o in others]}"
            )
        self.op: Op = others[0]
        self.shape = graph.values[self.op.outputs[0]].shape
        self._before = Region(graph, ops)
        self._after = Region(graph, ops, stops=self.op.outputs)

    def read(self, operand: int, position: Sequence[Expr], ranges: Mapping[int, Range]) -> Expr:
        """Element of the anchor's input number `operand`, seen through views and fused operations."""
        return simplify(self._before.read(self.op.inputs[operand], position), ranges)

    def access(self, operand: int, position: Sequence[Expr], ranges: Mapping[int, Range]) -> Access | None:
        """The same as a plain strided read of memory; None when anything is computed on the way."""
        return as_access(self.read(operand, position, ranges), ranges)

    def written(self) -> tuple[str, ...]:
        """Values of these operations that somebody outside needs in memory."""
        kept, inside = returned(self.graph), set(self.ops)
        return tuple(
            out for name in self.ops if self.graph.op(name).kind != "view" for out in self.graph.op(name).outputs
            if out in kept or any(reader.name not in inside for reader in readers(self.graph, out))
        )  # fmt: skip

    def stores(
        self, outputs: Sequence[str], position: Sequence[Expr], ranges: Mapping[int, Range]
    ) -> tuple[Store, ...]:
        """What to write for the anchor's element at `position`; `local` nodes in it are the anchor's own outputs there.

        Raises ValueError when an output has other elements than the anchor, or needs another element of the anchor.
        """
        here = tuple(simplify(p, ranges) for p in position)
        found = []
        for name in outputs:
            store = self.reshaped(name, position, ranges)
            for node in walk(store.value):
                if node.op == "local" and tuple(node.args) != here:
                    raise ValueError(f"{name} needs {self.op.name} at another position")
            found.append(store)
        return tuple(found)

    def reshaped(self, name: str, position: Sequence[Expr], ranges: Mapping[int, Range]) -> Store:
        """The element of output `name` that lies where the anchor's element at `position` lies, in row-major order."""
        value, own = self.graph.values[name], self.graph.values[self.op.outputs[0]]
        if value.shape == own.shape:
            place = tuple(position)
        elif value.numel == own.numel and value.numel is not None:
            place = unravel(simplify(ravel(position, strides_of(own.shape)), ranges), value.shape)
        else:
            raise ValueError(f"{name} has shape {value.shape}, the anchor {own.shape}")
        return self.at(name, tuple(simplify(p, ranges) for p in place), ranges)

    def at(self, name: str, place: Sequence[Expr], ranges: Mapping[int, Range]) -> Store:
        """The element of output `name` at its own position `place`, wherever it reads the anchor's outputs."""
        offset = simplify(ravel(place, strides_of(self.graph.values[name].shape)), ranges)
        return Store(name, offset, simplify(self._after.read(name, place), ranges))

    def fits(self, position: Sequence[Expr] | None = None, ranges: Mapping[int, Range] | None = None) -> bool:
        """Whether everything that must be written can be, element by element."""
        position = identity(len(self.shape)) if position is None else position
        try:
            stores = self.stores(self.written(), position, ranges_of(self.shape) if ranges is None else ranges)
            return bool(stores) and all(plain(s.value) for s in stores)
        except (ValueError, KeyError):
            return False


def plain(e: Expr) -> bool:
    """Whether the families here can write an expression: no search in a table."""
    return all(node.op != "search" for node in walk(e))


def as_access(e: Expr, ranges: Mapping[int, Range]) -> Access | None:
    """An expression as a strided read; None when it is more than that."""
    if e.op != "element":
        return None
    flat = affine(e.args[0], ranges)
    if any(atom.op != "index" for atom in flat.terms):
        return None
    return Access(e.value, flat.constant, {atom.value: c for atom, c in flat.terms.items()})


def locals_of(stores: Iterable[Store]) -> dict[str, Expr]:
    """The anchor's outputs that stores read, by name."""
    return {n.value: n for s in stores for n in walk(s.value) if n.op == "local"}


def write_stores(scope: Scope, stores: Sequence[Store], names: Mapping[str, str]) -> None:
    """Append to `scope` the statements that compute and write `stores`; `names`: C++ text of each anchor output."""
    for name, node in locals_of(stores).items():
        scope.bind(node, names[name])
    scope.expect(*(e for s in stores for e in (s.value, s.offset)))
    texts = [(s, scope.value(s.value), scope.value(s.offset)) for s in stores]
    scope.lines += [CPP.store(s.name, bare(offset), text, s.value.dtype) for s, text, offset in texts]


def write_value(scope: Scope, e: Expr) -> str:
    """Text of `e`, with what it needs appended to `scope`."""
    scope.expect(e)
    return bare(scope.value(e))


def bare(text: str) -> str:
    """Without brackets around the whole."""
    return CPP.declare("x", "int64", text)[len("const int64_t x = ") : -1] if text.startswith("(") else text


def signature(graph: Graph, kernel: Kernel, scratch: Mapping[str, str] | None = None, *, outputs: bool = True) -> str:
    """The C++ parameter list: inputs, outputs, then scratch (name -> element type)."""
    parts = [f"const {STORAGE[graph.values[n].dtype]}* __restrict {pointer(n)}" for n in kernel.inputs]
    if outputs:
        parts += [f"{STORAGE[graph.values[n].dtype]}* __restrict {pointer(n)}" for n in kernel.outputs]
    parts += [f"void* __restrict {name}_memory" for name in scratch or {}]
    return ",\n    ".join(parts)


def scratch_lines(scratch: Mapping[str, str]) -> list[str]:
    """Scratch memory under its own type."""
    return [f"{kind}* __restrict {name} = static_cast<{kind}*>({name}_memory);" for name, kind in scratch.items()]


def arguments(kernel: Kernel, scratch: Iterable[str] = ()) -> tuple[str, ...]:
    """The same list for `KernelSource.arguments`."""
    return (*kernel.inputs, *kernel.outputs, *(f"scratch:{name}" for name in scratch))


def indent(lines: Iterable[str] | str, by: int = 1) -> str:
    """Lines (or a text) shifted right by `by` levels, joined."""
    text = lines if isinstance(lines, str) else "\n".join(lines)
    return "\n".join(("    " * by + line) if line else line for line in text.split("\n"))


def join(*parts: str) -> str:
    """Non-empty parts, one below the other."""
    return "\n".join(part for part in parts if part)


def nest(pragma: str, loops: Sequence[tuple[str, int | str, int]], body: str, *, schedule: str = "static") -> str:
    """Parallel loops around `body`: (variable, end, step) each. Loops of one round are left out, but for one of them.

    Args:
        pragma: "omp for" or "omp parallel for".
        loops: Outermost first.
        body: Statements of the innermost loop.
        schedule: OpenMP's.
    """
    kept = [loop for loop in loops if not isinstance(loop[1], int) or loop[1] > loop[2]] or [loops[-1]]
    fixed = [v for v, _, _ in loops if v not in [k for k, _, _ in kept] and re.search(rf"\b{v}\b", body)]
    text = join(*(f"const int64_t {v} = 0;" for v in fixed), body)
    for depth, (v, end, step) in enumerate(reversed(kept)):
        head = f"for (int64_t {v} = 0; {v} < {end}; {f'{v} += {step}' if step != 1 else f'{v}++'})"
        text = f"{head} {{\n{indent(text)}\n}}" if depth == 0 else f"{head}\n{indent(text)}"
    collapse = f" collapse({len(kept)})" if len(kept) > 1 else ""
    return f"#pragma {pragma}{collapse} schedule({schedule})\n{text}"
