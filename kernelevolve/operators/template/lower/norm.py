"""Normalisations, softmax and the losses on top of it: pointwise operations around reductions."""

from __future__ import annotations

import math

from kernelevolve.operators.template.expr import Expr, call, cast, const, index
from kernelevolve.operators.template.lower.builder import Builder, Call, lowers
from kernelevolve.operators.template.lower.pointwise import emit
from kernelevolve.operators.template.lower.reduce import (
    converted,
    finish,
    mean_of,
    stage,
    total,
    variance_of,
)


def _scaled(b: Builder, c: Call, body: Expr, weight: str | None, bias: str | None) -> Expr:
    """Body * weight + bias, either absent; both broadcast as they are."""
    if weight is not None:
        body = body * cast(b.arg(weight), c.dtype)
    return body if bias is None else body + cast(b.arg(bias), c.dtype)


@lowers("aten.layer_norm", "aten.native_layer_norm")
def layer_norm(b: Builder, c: Call) -> str | None:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions."""
    x = c["input"]
    rank, width = len(b.shape(x)), len(c["normalized_shape"])
    if len(c.outputs) != 1 or b.dtype(x) != c.dtype:
        return None
    var, mean = variance_of(b, c.name, x, range(rank - width, rank), 0, c.target)
    scale = stage(b, f"{c.name}_scale", call("rsqrt", b.arg(var) + c["eps"]), var, c.target)
    return emit(b, c, _scaled(b, c, (b.arg(x) - b.arg(mean)) * b.arg(scale), c["weight"], c["bias"]))


@lowers("aten.rms_norm")
def rms_norm(b: Builder, c: Call) -> str | None:
    """X / sqrt(mean(x^2) + eps) * weight; eps defaults to that of float32."""
    x = c["input"]
    rank, width = len(b.shape(x)), len(c["normalized_shape"])
    square = stage(b, f"{c.name}_square", b.arg(x) * b.arg(x), x, c.target)
    mean = mean_of(b, f"{c.name}_mean", square, range(rank - width, rank), c.target)
    eps = c.get("eps", 2.220446049250313e-16 if c.dtype == "float64" else 1.1920928955078125e-07)
    scale = stage(b, f"{c.name}_scale", call("rsqrt", b.arg(mean) + eps), mean, c.target)
    return emit(b, c, _scaled(b, c, b.arg(x) * b.arg(scale), c["weight"], None))


def _channels(b: Builder, c: Call, name: str, rank: int) -> str | None:
    """A value per channel as a tensor that broadcasts over (batch, channel, …)."""
    if c.raw.get(name) is None:
        return None
    n = b.sizes(c[name])[0]
    return b.reshape(b.fresh(f"{c.name}_{name}"), c[name], (1, n, *[1] * (rank - 2)))


@lowers("aten.group_norm", "aten.instance_norm")
def group_norm(b: Builder, c: Call) -> str | None:
    """Statistics over each group of channels of each sample; an instance norm has one channel per group."""
    x, shape = c["input"], b.sizes(c["input"])
    groups = c["num_groups"] if "num_groups" in c.raw else shape[1]
    if "num_groups" not in c.raw and not c["use_input_stats"]:
        return None
    if "num_groups" not in c.raw and c.raw.get("running_mean") is not None:
        return None
    inner = math.prod(shape[2:])
    grouped = b.reshape(b.fresh(f"{c.name}_grouped"), x, (shape[0], groups, shape[1] // groups, inner))
    var, mean = variance_of(b, c.name, grouped, (2, 3), 0, c.target)
    scale = stage(b, f"{c.name}_scale", call("rsqrt", b.arg(var) + c["eps"]), var, c.target)
    body = (b.arg(grouped) - b.arg(mean)) * b.arg(scale)
    for name, op in (("weight", "mul"), ("bias", "add")):
        if c.raw.get(name) is not None:
            own = b.reshape(b.fresh(f"{c.name}_{name}"), c[name], (1, groups, shape[1] // groups, 1))
            body = call(op, body, b.arg(own))
    result = stage(b, f"{c.name}_grouped_out", body, grouped, c.target)
    return b.reshape(c.name, result, shape, c.target)


@lowers("aten.batch_norm", "aten._native_batch_norm_legit_no_training")
def batch_norm(b: Builder, c: Call) -> str | None:
    """With stored statistics, or with the batch's own when none are stored (stored ones would have to be updated)."""
    x, shape = c["input"], b.shape(c["input"])
    rank = len(shape)
    if len(c.outputs) != 1:
        return None
    if c.get("training", False):
        if c.raw.get("running_mean") is not None:
            return None
        var, mean = variance_of(b, c.name, x, [d for d in range(rank) if d != 1], 0, c.target)
    else:
        found = (_channels(b, c, n, rank) for n in ("running_var", "running_mean"))
        var, mean = (str(n) for n in found)
    scale = stage(b, f"{c.name}_scale", call("rsqrt", b.arg(var) + c["eps"]), var, c.target)
    body = (b.arg(x) - b.arg(mean)) * b.arg(scale)
    return emit(b, c, _scaled(b, c, body, _channels(b, c, "weight", rank), _channels(b, c, "bias", rank)))


def _softmax_input(b: Builder, c: Call) -> tuple[str, int] | None:
    rank = len(b.shape(c["self"]))
    return (converted(b, c["self"], c.dtype, c.name), c["dim"] % rank) if rank else None


@lowers("aten.softmax", "aten._softmax")
def softmax(b: Builder, c: Call) -> str | None:
    """e^(x - max) / sum."""
    found = _softmax_input(b, c)
    if found is None:
        return None
    x, dim = found
    top = total(b, f"{c.name}_max", x, (dim,), c.target, "max")
    powers = stage(b, f"{c.name}_exp", call("exp", b.arg(x) - b.arg(top)), x, c.target)
    sums = total(b, f"{c.name}_sum", powers, (dim,), c.target)
    return emit(b, c, b.arg(powers) / b.arg(sums))


@lowers("aten.log_softmax", "aten._log_softmax")
def log_softmax(b: Builder, c: Call) -> str | None:
    """X - max - log(sum(e^(x - max)))."""
    found = _softmax_input(b, c)
    if found is None:
        return None
    x, dim = found
    return emit(b, c, _log_softmax_of(b, c, x, dim))


def _log_softmax_of(b: Builder, c: Call, x: str, dim: int) -> Expr:
    top = total(b, f"{c.name}_max", x, (dim,), c.target, "max")
    powers = stage(b, f"{c.name}_exp", call("exp", b.arg(x) - b.arg(top)), x, c.target)
    sums = total(b, f"{c.name}_sum", powers, (dim,), c.target)
    logs = stage(b, f"{c.name}_log", call("log", b.arg(sums)), sums, c.target)
    return b.arg(x) - b.arg(top) - b.arg(logs)


@lowers("aten.nll_loss", "aten.nll_loss_nd", "aten.cross_entropy_loss")
def nll(b: Builder, c: Call) -> str | None:
    """Minus the (log-softmax) score of each row's target class; mean over rows that are not ignored."""
    x = c["self"]
    if len(b.shape(x)) != 2 or b.dtype(c["target"]) != "int64" or c.raw.get("weight") is not None:
        return None
    if c.get("label_smoothing", 0.0):
        return None
    rows, classes = b.sizes(x)
    logs = x
    if "cross_entropy" in c.target:
        logs = stage(b, f"{c.name}_log_softmax", _log_softmax_of(b, c, x, 1), x, c.target)
    target = b.arg(c["target"])
    kept = call("ne", target, const(c.get("ignore_index", -100), "int64"))
    column = call("min", call("max", target, const(0, "int64")), const(classes - 1, "int64"))
    picked = b.load(logs, index(-1), column)
    loss = call("where", kept, -picked, const(0.0, b.dtype(x)))
    mode = c.get("reduction", 1)
    if mode == 0:
        return emit(b, c, loss)
    each = b.pointwise(b.fresh(f"{c.name}_each"), loss, (rows,), c.target)
    kept_sum = total(b, f"{c.name}_total", each, (0,), c.target)
    if mode == 2:
        return finish(b, c, kept_sum)
    count = b.pointwise(b.fresh(f"{c.name}_kept"), cast(kept, b.dtype(x)), (rows,), c.target)
    counts = total(b, f"{c.name}_count", count, (0,), c.target)
    return finish(b, c, kept_sum, b.arg(kept_sum) / b.arg(counts))
