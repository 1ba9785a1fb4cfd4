"""Arithmetic, comparisons, choices and casts, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kernelevolve.operators.template.expr import FLOATS, INTEGERS, Expr, call, cast, const
from kernelevolve.operators.template.lower.builder import Builder, Call, NotLoweredError, lowers

_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def operand(b: Builder, c: Call, name: str, dtype: str) -> Expr:
    """An argument that may be a tensor or a number, in `dtype`."""
    if c.is_tensor(name):
        return cast(b.arg(c[name]), dtype)
    value = c[name]
    if not isinstance(value, (bool, int, float)):
        raise NotLoweredError(f"{c.target}: {name} is {value!r}")
    return const(value, dtype)


def common_dtype(b: Builder, c: Call, *names: str) -> str:
    """As torch promotes: numbers and 0-d tensors count only by category (bool, integer, floating)."""
    strong: list[str] = []
    weak: list[str] = []
    for name in names:
        if c.is_tensor(name):
            (strong if b.shape(c[name]) else weak).append(b.dtype(c[name]))
        elif c.raw.get(name) is not None:
            value = c[name]
            weak.append("bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32")
    best = _promoted(strong)
    weakest = _promoted(weak)
    if best is None or (weakest is not None and _category(weakest) > _category(best)):
        return weakest or "float32"
    return best


def _category(dtype: str) -> int:
    return 0 if dtype == "bool" else 1 if dtype in INTEGERS else 2


def _promoted(dtypes: list[str]) -> str | None:
    if not dtypes:
        return None
    if set(dtypes) == {"float16", "bfloat16"}:
        return "float32"
    if (
        "uint8" in dtypes
        and any(d in ("int8", "int16") for d in dtypes)
        and _category(max(dtypes, key=_ORDER.index)) == 1
    ):
        return "int16"
    return max(dtypes, key=_ORDER.index)


def emit(b: Builder, c: Call, body: Expr) -> str:
    """A pointwise value of the call's own shape and dtype."""
    return b.pointwise(c.name, cast(body, c.dtype), c.shape, c.target)


def _register_unary(aten: str, op: str) -> None:
    @lowers(f"aten.{aten}")
    def rule(b: Builder, c: Call) -> str | None:
        if op in ("floor", "ceil", "round", "trunc") and c.dtype in INTEGERS:
            return b.same(c.name, c["self"])
        if aten == "round" and c.get("decimals"):
            return None
        return emit(b, c, call(op, cast(b.arg(c["self"]), c.dtype), dtype=c.dtype))


for _name in (
    "neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
    "tan", "tanh", "sigmoid", "erf", "asin", "acos", "atan", "sinh", "cosh", "floor", "ceil", "round", "trunc", "sign",
):  # fmt: skip
    _register_unary(_name, _name)


def _register_binary(aten: str, op: str) -> None:
    @lowers(f"aten.{aten}")
    def rule(b: Builder, c: Call) -> str | None:
        dtype = common_dtype(b, c, "self", "other")
        left, right = (operand(b, c, n, dtype) for n in ("self", "other"))
        return emit(b, c, call(op, left, right))


for _name, _op in {
    "maximum": "max", "minimum": "min", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne",
    "mul": "mul", "atan2": "atan2", "fmod": "fmod", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor",
    "multiply": "mul", "less": "lt", "greater": "gt", "max.other": "max", "min.other": "min",
    "__and__": "and", "__or__": "or", "__xor__": "xor", "bitwise_left_shift": "shl", "bitwise_right_shift": "shr",
}.items():  # fmt: skip
    _register_binary(_name, _op)


@lowers("aten.add", "aten.sub", "aten.rsub", "aten.subtract")
def add_or_sub(b: Builder, c: Call) -> str | None:
    """Self ± alpha * other, or other - alpha * self."""
    left, right = (operand(b, c, n, c.dtype) for n in ("self", "other"))
    if "rsub" in c.target:
        left, right = right, left
    if c.get("alpha", 1) != 1:
        right = right * c["alpha"]
    return emit(b, c, left + right if c.target.startswith("aten.add") else left - right)


@lowers("aten.div", "aten.true_divide", "aten.divide")
def div(b: Builder, c: Call) -> str | None:
    """Division, true or rounded to floor or towards zero. By a power of two it is a product, which is exact."""
    mode = c.get("rounding_mode")
    left, right = (operand(b, c, n, c.dtype) for n in ("self", "other"))
    if mode == "floor":
        return emit(b, c, call("floordiv", left, right))
    if mode == "trunc":
        return emit(b, c, call("trunc", left / right)) if c.dtype in FLOATS else None
    if right.op == "const" and right.value and abs(math.frexp(float(right.value))[0]) == 0.5:
        return emit(b, c, left * (1.0 / float(right.value)))
    return emit(b, c, left / right)


@lowers("aten.floor_divide")
def floor_divide(b: Builder, c: Call) -> str | None:
    """floor(self / other)."""
    return emit(b, c, call("floordiv", operand(b, c, "self", c.dtype), operand(b, c, "other", c.dtype)))


@lowers("aten.remainder")
def remainder(b: Builder, c: Call) -> str | None:
    """Python's modulo."""
    return emit(b, c, call("mod", operand(b, c, "self", c.dtype), operand(b, c, "other", c.dtype)))


@lowers("aten.pow", "aten.square", "aten.float_power")
def power(b: Builder, c: Call) -> str | None:
    """Small whole and half powers by products and roots."""
    x = operand(b, c, "self", c.dtype)
    if c.target.startswith("aten.square"):
        return emit(b, c, x * x)
    if c.is_tensor("exponent"):
        return emit(b, c, call("pow", x, operand(b, c, "exponent", c.dtype))) if c.dtype in FLOATS else None
    exponent = c["exponent"]
    known: dict[float, Callable[[], Expr]] = {
        0: lambda: const(1, c.dtype),
        1: lambda: x,
        2: lambda: x * x,
        3: lambda: x * x * x,
        4: lambda: (x * x) * (x * x),
        0.5: lambda: call("sqrt", x),
        -0.5: lambda: call("rsqrt", x),
        -1: lambda: call("reciprocal", x),
        -2: lambda: call("reciprocal", x * x),
        1.5: lambda: x * call("sqrt", x),
    }
    if exponent in known and (c.dtype in FLOATS or exponent in (1, 2, 3, 4)):
        return emit(b, c, known[exponent]())
    return emit(b, c, call("pow", x, const(exponent, c.dtype))) if c.dtype in FLOATS else None


@lowers("aten.clamp", "aten.clip", "aten.clamp_min", "aten.clamp_max", "aten.hardtanh", "aten.relu6")
def clamp(b: Builder, c: Call) -> str | None:
    """Limits that may be absent; NaN stays NaN."""
    x = operand(b, c, "self", c.dtype)
    low, high = ("min_val", "max_val") if "min_val" in c.raw else ("min", "max")
    if c.target.startswith("aten.relu6"):
        return emit(b, c, call("min", call("max", x, const(0, c.dtype)), const(6, c.dtype)))
    if c.raw.get(low) is not None:
        x = call("max", x, operand(b, c, low, c.dtype))
    if c.raw.get(high) is not None:
        x = call("min", x, operand(b, c, high, c.dtype))
    return emit(b, c, x)


@lowers("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(b: Builder, c: Call) -> str | None:
    """A choice per element."""
    condition = operand(b, c, "condition", "bool")
    return emit(b, c, call("where", condition, operand(b, c, "self", c.dtype), operand(b, c, "other", c.dtype)))


@lowers("aten.masked_fill")
def masked_fill(b: Builder, c: Call) -> str | None:
    """`value` where the mask holds."""
    mask = operand(b, c, "mask", "bool")
    return emit(b, c, call("where", mask, operand(b, c, "value", c.dtype), operand(b, c, "self", c.dtype)))


def _register_logical(aten: str, op: str) -> None:
    @lowers(f"aten.{aten}")
    def rule(b: Builder, c: Call) -> str | None:
        names = ("self",) if op == "not" else ("self", "other")
        return emit(b, c, call(op, *(operand(b, c, n, "bool") for n in names), dtype="bool"))


for _name, _op in {"logical_and": "and", "logical_or": "or", "logical_xor": "xor", "logical_not": "not"}.items():
    _register_logical(_name, _op)


@lowers("aten.bitwise_not")
def bitwise_not(b: Builder, c: Call) -> str | None:
    """Complement."""
    x = b.arg(c["self"])
    return emit(b, c, call("not", x) if c.dtype == "bool" else call("xor", x, const(-1, c.dtype)))


@lowers("aten.isnan", "aten.isinf", "aten.isfinite")
def classify(b: Builder, c: Call) -> str | None:
    """NaN and infinity tests."""
    x = b.arg(c["self"])
    if x.dtype not in FLOATS:
        return emit(b, c, const("finite" in c.target, "bool"))
    if "finite" in c.target:
        return emit(b, c, call("eq", x - x, const(0.0, x.dtype)))
    return emit(b, c, call("isnan" if "isnan" in c.target else "isinf", x))


@lowers("aten.nan_to_num")
def nan_to_num(b: Builder, c: Call) -> str | None:
    """Numbers for NaN and the infinities; the largest finite ones by default."""
    x = b.arg(c["self"])
    if x.dtype != "float32":
        return None
    top = 3.4028234663852886e38
    finite = call("where", call("isnan", x), const(c.get("nan", 0.0), x.dtype), x)
    high, low = const(c.get("posinf", top), x.dtype), const(c.get("neginf", -top), x.dtype)
    finite = call("where", call("eq", x, const(math.inf, x.dtype)), high, finite)
    return emit(b, c, call("where", call("eq", x, const(-math.inf, x.dtype)), low, finite))


@lowers("aten.lerp")
def lerp(b: Builder, c: Call) -> str | None:
    """Self + weight * (end - self), from the nearer end, as torch."""
    x, end, w = (operand(b, c, n, c.dtype) for n in ("self", "end", "weight"))
    near = call("lt", call("abs", w), const(0.5, c.dtype))
    return emit(b, c, call("where", near, x + w * (end - x), end - (end - x) * (1.0 - w)))


@lowers("aten.addcmul", "aten.addcdiv")
def addc(b: Builder, c: Call) -> str | None:
    """Self + value * tensor1 (* or /) tensor2."""
    x, y, z = (operand(b, c, n, c.dtype) for n in ("self", "tensor1", "tensor2"))
    scaled = y if c.get("value", 1) == 1 else y * c["value"]
    return emit(b, c, x + (scaled * z if "mul" in c.target else scaled / z))


@lowers(
    "aten.to.dtype",
    "aten._to_copy",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.type_as",
    "aten.float",
    "aten.to.other",
)
def to(b: Builder, c: Call) -> str | None:
    """A conversion; nothing when the dtype stays."""
    x = c["self"]
    return b.same(c.name, x) if b.dtype(x) == c.dtype else emit(b, c, b.arg(x))


@lowers(
    "aten.clone",
    "aten.alias",
    "aten.detach",
    "aten.contiguous",
    "aten.lift_fresh_copy",
    "aten.detach_",
    "aten.lift_fresh",
)
def identity(b: Builder, c: Call) -> str | None:
    """Values are contiguous and never changed: a copy is the value itself."""
    return b.same(c.name, c["self"])


@lowers("aten.dropout", "aten.alpha_dropout", "aten.feature_dropout", "aten.native_dropout")
def dropout(b: Builder, c: Call) -> str | None:
    """Nothing to do out of training or with p = 0."""
    return b.same(c.name, c["input"]) if not c["train"] or c["p"] == 0 else None


def constant_of(c: Call) -> Any:
    """The number that a fill writes."""
    for kind, value in (("zeros", 0), ("ones", 1), ("zero", 0)):
        if kind in c.target:
            return value
    return c.get("fill_value", c.get("value", c.get("s")))


@lowers(
    "aten.full", "aten.zeros", "aten.ones", "aten.full_like", "aten.zeros_like", "aten.ones_like", "aten.scalar_tensor",
    "aten.new_zeros", "aten.new_ones", "aten.new_full", "aten.fill",
)  # fmt: skip
def fill(b: Builder, c: Call) -> str | None:
    """One number everywhere."""
    value = constant_of(c)
    return emit(b, c, const(value, c.dtype)) if isinstance(value, (bool, int, float)) else None
