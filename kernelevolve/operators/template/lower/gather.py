"""Reads at positions that are data, and searches in sorted tables."""

from __future__ import annotations

from kernelevolve.operators.template.expr import Expr, call, cast, const, index, search
from kernelevolve.operators.template.lower.builder import Builder, Call, NotLoweredError, lowers
from kernelevolve.operators.template.lower.pointwise import emit, operand
from kernelevolve.operators.template.lower.ragged import masked_rows


def _from_end(position: Expr, size: int | str) -> Expr:
    """A negative position counts from the end."""
    if not isinstance(size, int):
        raise NotLoweredError("an index into a size known only at run time")
    return call("where", call("lt", position, const(0, "int64")), position + size, position)


@lowers("aten.gather")
def gather(b: Builder, c: Call) -> str | None:
    """out[i][j][k] = self[index[i][j][k]][j][k] for dim 0, and so on."""
    rank = len(c.shape)
    if rank == 0:
        return None
    position = [index(d) for d in range(-rank, 0)]
    position[c["dim"] % rank] = cast(b.arg(c["index"]), "int64")
    return emit(b, c, b.load(c["self"], *position))


@lowers("aten.index_select")
def index_select(b: Builder, c: Call) -> str | None:
    """Rows by number along `dim`."""
    rank = len(c.shape)
    if rank == 0 or len(b.shape(c["index"])) != 1:
        return None
    dim = c["dim"] % rank
    position = [index(d) for d in range(-rank, 0)]
    position[dim] = cast(b.load(c["index"], index(dim - rank)), "int64")
    return emit(b, c, b.load(c["self"], *position))


@lowers("aten.embedding")
def embedding(b: Builder, c: Call) -> str | None:
    """Rows of a table."""
    own = len(b.shape(c["indices"]))
    row = cast(b.load(c["indices"], *(index(d - 1) for d in range(-own, 0))), "int64")
    return emit(b, c, b.load(c["weight"], row, index(-1)))


@lowers("aten.index.Tensor")
def index_tensor(b: Builder, c: Call) -> str | None:
    """Advanced indexing with integer tensors that stand next to each other; bool masks are another matter."""
    given = list(c.raw["indices"])
    names: list[str] = [g["ref"] if g is not None else "" for g in given]
    names += [""] * (len(b.shape(c["self"])) - len(names))
    used = [d for d, n in enumerate(names) if n]
    if used == [0] and b.dtype(str(names[0])) == "bool":
        return masked_rows(b, c, str(names[0]))
    if not used or used != list(range(used[0], used[-1] + 1)) or any(b.dtype(names[d]) == "bool" for d in used):
        return None
    shape = b.shape(c["self"])
    rank, width = len(c.shape), max(len(b.shape(names[d])) for d in used)
    after = len(names) - used[-1] - 1
    position: list[Expr] = []
    for d, name in enumerate(names):
        if not name:
            position.append(index(d - rank) if d < used[0] else index(d - len(names)))
            continue
        own = b.shape(name)
        place = [const(0, "int64") if n == 1 else index(k - len(own) - after) for k, n in enumerate(own)]
        position.append(_from_end(cast(b.load(name, *place), "int64"), shape[d]))
    return emit(b, c, b.load(c["self"], *position)) if rank == used[0] + width + after else None


@lowers("aten.take")
def take(b: Builder, c: Call) -> str | None:
    """Elements of the flattened tensor."""
    sizes = b.sizes(c["self"])
    total = 1
    for n in sizes:
        total *= n
    flat = b.reshape(b.fresh(f"{c.name}_flat"), c["self"], (total,))
    return emit(b, c, b.load(flat, _from_end(b.arg(c["index"]), total)))


@lowers("aten.bucketize", "aten.searchsorted")
def bucketize(b: Builder, c: Call) -> str | None:
    """How many boundaries are below (right: not above) each value. NaN sorts last, as in torch."""
    names = ("sorted_sequence", "self") if "searchsorted" in c.target else ("boundaries", "self")
    table, right = b.materialised(c[names[0]]), bool(c.get("right", False)) or c.get("side") == "right"
    if len(b.shape(table)) != 1 or not isinstance(b.shape(table)[0], int) or c.get("sorter") is not None:
        return None
    kind = b.dtype(table)
    x = operand(b, c, "self", b.dtype(c["self"]) if c.is_tensor("self") else kind)
    if x.dtype != kind:
        return None
    return emit(b, c, search(table, x, right=right))
