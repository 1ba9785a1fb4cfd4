"""Views, and operations that only move elements: index maps that cost nothing until somebody reads through them."""

from __future__ import annotations

from collections.abc import Sequence

from kernelevolve.operators.template.affine import strides_of
from kernelevolve.operators.template.expr import Expr, call, cast, const, index
from kernelevolve.operators.template.graph import Dim
from kernelevolve.operators.template.lower.builder import Builder, Call, NotLoweredError, lowers
from kernelevolve.operators.template.lower.pointwise import emit


@lowers(
    "aten.view",
    "aten.reshape",
    "aten._unsafe_view",
    "aten.flatten",
    "aten.unflatten",
    "aten.view_as",
    "aten.unsqueeze",
    "aten.squeeze",
    "aten._reshape_alias",
    "aten.reshape_as",
)
def reshape(b: Builder, c: Call) -> str | None:
    """Same elements, same order; the capture knows the shape."""
    if b.dtype(c["self"]) != c.dtype:
        return None  # view as another dtype
    if c.shape == b.shape(c["self"]):
        return b.same(c.name, c["self"])
    return b.reshape(c.name, c["self"], c.shape, c.target)


@lowers("aten.permute", "aten.transpose", "aten.t", "aten.movedim", "aten.swapaxes", "aten.numpy_T", "aten.mT")
def permute(b: Builder, c: Call) -> str | None:
    """Dimensions in another order."""
    shape = b.shape(c["self"])
    rank, order = len(shape), list(range(len(shape)))
    if "permute" in c.target:
        order = [d % rank for d in c["dims"]]
    elif "transpose" in c.target or "swapaxes" in c.target:
        i, j = (c.get(n, c.get(m)) % rank for n, m in (("dim0", "axis0"), ("dim1", "axis1")))
        order[i], order[j] = order[j], order[i]
    elif "movedim" in c.target:
        source, target = ([d] if isinstance(d, int) else d for d in (c["source"], c["destination"]))
        rest = [d for d in order if d not in [s % rank for s in source]]
        for t, s in sorted(zip([t % rank for t in target], [s % rank for s in source], strict=True)):
            rest.insert(t, s)
        order = rest
    elif "mT" in c.target:
        order[-1], order[-2] = order[-2], order[-1]
    else:
        order.reverse()
    strides = strides_of(shape)
    return b.view(c.name, c["self"], [shape[d] for d in order], [strides[d] for d in order], 0, c.target)


@lowers("aten.expand", "aten.expand_as", "aten.broadcast_to")
def expand(b: Builder, c: Call) -> str | None:
    """Repeat along dimensions of size 1, or new ones in front, without a copy."""
    shape, own = c.shape, b.shape(c["self"])
    strides = strides_of(own)
    pad = len(shape) - len(own)
    steps = [0 if d < pad or own[d - pad] != n else strides[d - pad] for d, n in enumerate(shape)]
    return b.view(c.name, c["self"], shape, steps, 0, c.target)


def slice_of(b: Builder, name: str, x: str, dim: int, start: int, length: int, step: int = 1, origin: str = "") -> str:
    """Elements start, start + step, … along `dim`."""
    shape, strides = list(b.shape(x)), list(strides_of(b.shape(x)))
    offset = start * strides[dim]
    shape[dim] = length
    strides[dim] *= step
    return b.view(name, x, shape, strides, offset, origin)


@lowers("aten.slice", "aten.narrow")
def slice_(b: Builder, c: Call) -> str | None:
    """A range along one dimension."""
    x, shape = c["self"], b.sizes(c["self"])
    dim = c.get("dim", 0) % len(shape)
    start = c.get("start", 0)
    start = max(0, min(shape[dim], start + shape[dim] if start < 0 else start))
    length = c.shape[dim]
    if not isinstance(length, int):
        return None
    if length == shape[dim]:
        return b.same(c.name, x)
    return slice_of(b, c.name, x, dim, start, length, c.get("step", 1), c.target)


@lowers("aten.select")
def select(b: Builder, c: Call) -> str | None:
    """One index along a dimension, which disappears."""
    shape, strides = list(b.shape(c["self"])), list(strides_of(b.shape(c["self"])))
    dim, k = c["dim"] % len(shape), c["index"]
    size = shape.pop(dim)
    if not isinstance(size, int) or not isinstance(k, int):
        return None
    step = strides.pop(dim)
    return b.view(c.name, c["self"], shape, strides, (k % size) * step, c.target)


@lowers("aten.unbind", "aten.chunk", "aten.split", "aten.split_with_sizes", "aten.tensor_split")
def split(b: Builder, c: Call) -> tuple[str, ...] | None:
    """Consecutive pieces; unbind drops the dimension."""
    x, shape = c["self"], b.sizes(c["self"])
    dim = c.get("dim", 0) % len(shape)
    strides, start, names = strides_of(shape), 0, []
    for name in c.outputs:
        if "unbind" in c.target:
            rest = [d for d in range(len(shape)) if d != dim]
            names.append(
                b.view(name, x, [shape[d] for d in rest], [strides[d] for d in rest], start * strides[dim], c.target)
            )
            start += 1
        else:
            length = b.spec(name).shape[dim]
            if not isinstance(length, int):
                return None
            names.append(slice_of(b, name, x, dim, start, length, 1, c.target))
            start += length
    return tuple(names)


@lowers("aten.arange")
def arange(b: Builder, c: Call) -> str | None:
    """Start + i * step."""
    start, step = c.get("start", 0), c.get("step", 1)
    if not isinstance(start, (int, float)) or not isinstance(step, (int, float)) or isinstance(c.shape[0], str):
        return None
    if isinstance(start, int) and isinstance(step, int):
        return emit(b, c, cast(index(-1) * step + start, c.dtype))
    return emit(b, c, cast(index(-1), c.dtype) * step + start)


@lowers("aten.cat", "aten.stack", "aten.concat", "aten.concatenate")
def cat(b: Builder, c: Call) -> str | None:
    """One pointwise value that chooses its source by position; loops are later split where the choice changes."""
    rank = len(c.shape)
    dim = c.get("dim", 0) % rank - rank
    stacked = "stack" in c.target
    parts = [t for t in c["tensors"] if stacked or b.shape(t) != (0,)]
    return emit(b, c, joined(b, parts, rank, dim, c.dtype, stacked=stacked))


def joined(b: Builder, parts: Sequence[str], rank: int, dim: int, dtype: str, *, stacked: bool = False) -> Expr:
    """The element of parts laid one after another along `dim` (negative)."""
    position = [index(d) for d in range(-rank, 0)]
    starts, start, bodies = [], 0, []
    for x in parts:
        size = 1 if stacked else b.shape(x)[dim]
        if not isinstance(size, int):
            raise NotLoweredError("cat along a size known only at run time")
        own = list(position)
        if stacked:
            del own[dim]
        else:
            own[dim] = clipped(index(dim) - start, size)
        bodies.append(cast(b.load(x, *own), dtype))
        starts.append(start)
        start += size
    return _chosen(index(dim), starts, bodies)


def _chosen(position: Expr, starts: Sequence[int], bodies: Sequence[Expr]) -> Expr:
    """The body whose start is the last at or before `position`, by halving."""
    if len(bodies) == 1:
        return bodies[0]
    half = len(bodies) // 2
    early = call("lt", position, const(starts[half], "int64"))
    return call(
        "where", early, _chosen(position, starts[:half], bodies[:half]), _chosen(position, starts[half:], bodies[half:])
    )


def clipped(position: Expr, size: Dim) -> Expr:
    """A position kept inside [0, size): what is read outside is not used, but must exist."""
    if not isinstance(size, int):
        raise NotLoweredError("a position in a size known only at run time")
    return call("min", call("max", position, const(0, "int64")), const(size - 1, "int64"))


@lowers("aten.flip")
def flip(b: Builder, c: Call) -> str | None:
    """Reversed along some dimensions."""
    shape = b.sizes(c["self"])
    dims = {d % len(shape) for d in c["dims"]}
    strides = strides_of(shape)
    offset = sum((shape[d] - 1) * strides[d] for d in dims)
    return b.view(c.name, c["self"], shape, [-s if d in dims else s for d, s in enumerate(strides)], offset, c.target)


@lowers("aten.roll")
def roll(b: Builder, c: Call) -> str | None:
    """Cyclic shift along some dimensions."""
    shape = b.sizes(c["self"])
    shifts, dims = ([v] if isinstance(v, int) else v for v in (c["shifts"], c.get("dims", [])))
    if not dims:
        return None
    position = [index(d) for d in range(-len(shape), 0)]
    for d, shift in zip(dims, shifts, strict=True):
        n, s = shape[d % len(shape)], shift % shape[d % len(shape)]
        p = position[d % len(shape)]
        wrapped = call("lt", p, const(s, "int64"))
        position[d % len(shape)] = call("where", wrapped, clipped(p + (n - s), n), clipped(p - s, n))
    return emit(b, c, b.load(c["self"], *position))


@lowers("aten.constant_pad_nd", "aten.pad")
def pad(b: Builder, c: Call) -> str | None:
    """Constant, reflected or repeated borders; a negative border cuts."""
    shape, mode = b.sizes(c["self"]), c.get("mode", "constant")
    position, inside = [index(d) for d in range(-len(shape), 0)], const(True, "bool")
    for k in range(len(c["pad"]) // 2):
        d, before, n = len(shape) - 1 - k, c["pad"][2 * k], shape[len(shape) - 1 - k]
        p = position[d] - before
        if mode == "reflect":
            p = call("max", p, -p)
            p = call("min", p, 2 * (n - 1) - p)
        elif mode == "circular":
            p = call("mod", p, const(n, "int64"))
        elif mode == "constant":
            held = call("and", call("ge", p, const(0, "int64")), call("lt", p, const(n, "int64")))
            inside = held if inside.op == "const" else call("and", inside, held)
        position[d] = clipped(p, n)
    body = b.load(c["self"], *position)
    if mode == "constant":
        body = call("where", inside, body, const(c.get("value", 0) or 0, c.dtype))
    return emit(b, c, body)


@lowers("aten.tril", "aten.triu")
def triangle(b: Builder, c: Call) -> str | None:
    """Zero above (tril) or below (triu) a diagonal."""
    beyond = index(-1) - index(-2)
    kept = call("le" if "tril" in c.target else "ge", beyond, const(c.get("diagonal", 0), "int64"))
    return emit(b, c, call("where", kept, b.arg(c["self"]), const(0, c.dtype)))


@lowers("aten.repeat")
def repeat(b: Builder, c: Call) -> str | None:
    """Whole copies side by side."""
    own = b.sizes(c["self"])
    rank = len(c.shape)
    position = [call("mod", index(d), const(own[d], "int64")) for d in range(-len(own), 0)]
    return emit(b, c, b.load(c["self"], *position)) if rank >= len(own) else None
