"""What a matrix product reads and writes, before any decision about how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelevolve.operators.template.affine import ravel, simplify, unravel
from kernelevolve.operators.template.cpp.anchor import Anchor, Store, as_access, plain
from kernelevolve.operators.template.cpp.tiles import BYTES
from kernelevolve.operators.template.expr import Expr, const, index, substitute
from kernelevolve.operators.template.graph import Graph

BATCH, ROW, COLUMN, DEPTH = index(-3), index(-2), index(-1), index(-4)
TYPES = {"float32": "float", "float64": "double"}
STACK_BYTES = 1 << 20
"""A thread's own buffers stay below this."""


class Product:
    """A product and its surroundings, in terms of a flat batch index, a row, a column and the summed index."""

    def __init__(self, graph: Graph, ops: Sequence[str]) -> None:
        self.anchor = Anchor(graph, ops, ("matmul",))
        op, shape = self.anchor.op, self.anchor.shape
        left, right = (graph.values[name] for name in op.inputs)
        if any(isinstance(n, str) for v in (left, right) for n in v.shape) or left.dtype not in TYPES:
            raise ValueError("sizes must be known, and elements be floats of 4 or 8 bytes")
        self.kind = TYPES[left.dtype]
        flipped = bool(op.attrs.get("transpose_a")), bool(op.attrs.get("transpose_b"))
        *batch, self.rows, self.columns = (int(n) for n in shape)
        self.depth = int(left.shape[-2 if flipped[0] else -1])
        self.batches = 1
        for n in batch:
            self.batches *= n
        own: tuple[Expr, ...]
        if self.batches > 1 and all(n == 1 for n in right.shape[:-2]):
            *outer, row = unravel(ROW, (*batch, self.rows))
            self.rows, self.batches = self.rows * self.batches, 1
        else:
            outer, row = list(unravel(BATCH, batch)), ROW
        if 0 in (self.rows, self.columns, self.depth, self.batches):
            raise ValueError("an empty product")
        self.ranges = {
            -4: (0, self.depth - 1),
            -3: (0, self.batches - 1),
            -2: (0, self.rows - 1),
            -1: (0, self.columns - 1),
        }
        self.position = (*outer, row, COLUMN)
        places = ((row, DEPTH), (DEPTH, COLUMN))
        reads = []
        for k, value in enumerate((left, right)):
            here = [const(0, "int64") if n == 1 else p for n, p in _aligned(value.shape[:-2], outer)]
            own = tuple(reversed(places[k])) if flipped[k] else places[k]
            reads.append(self.anchor.read(k, (*here, *own), self.ranges))
        self.left, self.right = reads
        self.a, self.b = (as_access(e, self.ranges) for e in reads)

    @property
    def fits(self) -> bool:
        """Whether everything written is computed from the element at hand, or from the batch's own small product."""
        if not all(plain(e) for e in (self.left, self.right)):
            return False
        return self.anchor.fits(self.position, self.ranges) or self.gathers

    @property
    def gathers(self) -> bool:
        """Whether the epilogue reads arbitrary elements of its batch's product."""
        try:
            return bool(self.anchor.written()) and all(self.gathered(name) for name in self.anchor.written())
        except (ValueError, KeyError):
            return False

    def gathered(self, name: str, width: int = 1) -> tuple[Store, dict[int, int]]:
        """What to write for one batch when its whole product is in `tile`; and the loops: index -> count."""
        value = self.anchor.graph.values[name]
        if self.batches < 2 or len(self.anchor.shape) != 3 or value.shape[0] != self.batches or None is value.numel:
            raise ValueError(f"{name} is not one row per batch")
        loops = {-11 - d: int(n) for d, n in enumerate(value.shape[1:])}
        ranges = {-3: self.ranges[-3], **{d: (0, n - 1) for d, n in loops.items()}}
        place = (BATCH, *(index(d) for d in loops))
        store = self.anchor.at(name, place, ranges)

        def change(node: Expr) -> Expr | None:
            if node.op != "local":
                return None
            if node.args[0] is not BATCH:
                raise ValueError(f"{name} reads another batch")
            flat = simplify(ravel(node.args[1:], (width, 1)), ranges)
            return Expr("element", (flat, BATCH), node.dtype, "$tile")  # BATCH keeps it inside the loop over batches

        if self.rows * self.columns * BYTES[self.kind] > STACK_BYTES // 4 or not plain(store.value):
            raise ValueError("too large for a thread's own buffer")
        return Store(name, store.offset, substitute(store.value, change)), loops


def _aligned(sizes: Sequence[Any], outer: Sequence[Expr]) -> list[tuple[Any, Expr]]:
    return list(zip(sizes, outer[len(outer) - len(sizes) :], strict=True))
