"""Scalar C++: each expression is one branch-free C++ expression, so that loops over it can be vectorised.

Functions named `k_…` are defined by the prelude, which is told which ones a kernel uses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import ClassVar

from kernelevolve.operators.template.expr import FLOATS, Expr
from kernelevolve.operators.template.scalar import Dialect, bare

STORAGE: Mapping[str, str] = {
    "float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "int16": "int16_t",
    "int8": "int8_t", "uint8": "uint8_t", "bool": "bool", "bfloat16": "uint16_t", "float16": "_Float16",
}  # fmt: skip
"""The type of an element in memory. Half precisions are computed in float."""

_MATH = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "erf", "asin", "acos",
         "atan", "sinh", "cosh")  # fmt: skip
_OWN = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tanh", "erf", "sigmoid")
"""Functions that the prelude has for float; double and the rest use the C library's."""


class Cpp(Dialect):
    """The table for C++."""

    name = "cpp"
    types: ClassVar[Mapping[str, str]] = {**STORAGE, "bfloat16": "float", "float16": "float"}
    functions: ClassVar[Mapping[str, str]] = {
        "neg": "(-{0})", "abs": "std::fabs({0})", "abs.int64": "k_abs({0})", "abs.int32": "k_abs({0})",
        "sqrt": "std::sqrt({0})", "rsqrt": "({t}(1) / std::sqrt({0}))", "reciprocal": "({t}(1) / {0})",
        "floor": "std::floor({0})", "ceil": "std::ceil({0})", "round": "std::rint({0})", "trunc": "std::trunc({0})",
        "sign": "k_sign({0})", "not": "(!{0})", "isnan": "({0} != {0})", "isinf": "(std::fabs({0}) == k_inf<{t}>)",
        "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "({0} / {1})",
        "floordiv": "k_floordiv({0}, {1})", "mod": "k_mod({0}, {1})", "fmod": "std::fmod({0}, {1})",
        "fmod.int64": "({0} % {1})", "fmod.int32": "({0} % {1})",
        "pow": "std::pow({0}, {1})", "atan2": "std::atan2({0}, {1})",
        "max": "k_max({0}, {1})", "min": "k_min({0}, {1})",
        # Integer literals are int, whatever stands beside them.
        **{f"{op}.int64": f"k_{op}<int64_t>({{0}}, {{1}})" for op in ("floordiv", "mod", "max", "min")},
        "lt": "({0} < {1})", "le": "({0} <= {1})", "gt": "({0} > {1})", "ge": "({0} >= {1})",
        "eq": "({0} == {1})", "ne": "({0} != {1})",
        "and": "({0} & {1})", "or": "({0} | {1})", "xor": "({0} ^ {1})", "shl": "({0} << {1})", "shr": "({0} >> {1})",
        "where": "({0} ? {1} : {2})", "fma": "std::fma({0}, {1}, {2})", "clamp": "k_min(k_max({0}, {1}), {2})",
        "sigmoid.float64": "(1.0 / (1.0 + std::exp(-{0})))",
        **{name: f"std::{name}({{0}})" for name in _MATH},
        **{f"{name}.{dtype}": f"k_{name}({{0}})" for name in _OWN for dtype in ("float32", "bfloat16", "float16")},
    }  # fmt: skip

    def function(self, e: Expr, arguments: Iterable[str]) -> str:
        """A call; a limit that is a number takes one instruction, which keeps NaN in the other argument."""
        texts = list(arguments)
        if e.op in ("max", "min") and e.args[0].dtype in FLOATS:
            for x, limit in ((0, 1), (1, 0)):
                if e.args[limit].op == "const" and e.args[limit].value == e.args[limit].value:
                    return f"k_{'at_least' if e.op == 'max' else 'at_most'}({texts[x]}, {texts[limit]})"
        return super().function(e, texts)

    def constant(self, e: Expr) -> str:
        """A literal."""
        if e.dtype == "bool":
            return "true" if e.value else "false"
        kind = self.types[e.dtype]
        if e.dtype in FLOATS:
            return float_literal(float(e.value), kind)
        number = int(e.value)
        return str(number) if abs(number) < 2**31 else f"{number}LL" if number > -(2**63) else "INT64_MIN"

    def convert(self, text: str, source: str, target: str) -> str:
        """A conversion; to bool it is a comparison with zero, to a half precision it rounds."""
        if target == "bool":
            return f"({text} != 0)"
        if target == "bfloat16":
            return f"k_load(k_bf16({text}))"
        if target == "float16":
            return f"float(_Float16({text}))"
        kind = self.types[target]
        return f"{kind}({bare(text)})" if kind != self.types.get(source) else text

    def element(self, e: Expr, offset: str) -> str:
        """A read."""
        read = f"{identifier(e.value)}[{offset}]"
        return {"bfloat16": f"k_load({read})", "float16": f"float({read})"}.get(e.dtype, read)

    def search(self, e: Expr, x: str) -> str:
        """A search through a function that the template writes for the table: see `cpp/search.py`."""
        return f"search_{identifier(e.value)}_{'right' if e.right else 'left'}({identifier(e.value)}, {x})"

    def declare(self, name: str, dtype: str, text: str) -> str:
        """A constant."""
        return f"const {self.types[dtype]} {name} = {bare(text)};"

    def store(self, name: str, offset: str, text: str, dtype: str) -> str:
        """Write the element of tensor `name` at flat `offset`."""
        value = {"bfloat16": f"k_bf16({text})", "float16": f"_Float16({text})"}.get(dtype, bare(text))
        return f"{identifier(name)}[{offset}] = {value};"


def float_literal(x: float, kind: str) -> str:
    """A floating-point literal that reads back exactly."""
    if math.isnan(x):
        return f"k_nan<{kind}>"
    if math.isinf(x):
        return f"{'-' if x < 0 else ''}k_inf<{kind}>"
    text = repr(x)
    if kind == "float":
        text = shortest_float(x)
    text = text if re.search(r"[.e]", text) else text + ".0"
    text += "f" if kind == "float" else ""
    return f"({text})" if text.startswith("-") else text


def shortest_float(x: float) -> str:
    """The shortest decimal that gives the same float."""
    import numpy as np

    with np.errstate(over="ignore"):
        single = np.float32(x)
    if np.isinf(single):
        return repr(x)
    return (
        repr(single.item())
        if str(single) == "0.0"
        else np.format_float_scientific(single, trim="-")
        if (abs(single) < 1e-4 or abs(single) >= 1e7)
        else np.format_float_positional(single, trim="0")
    )


def identifier(name: str) -> str:
    """A C++ identifier for a value's name."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"v_{text}" if text in _RESERVED or text[0].isdigit() or _OWN_NAME.fullmatch(text) else text


_OWN_NAME = re.compile(r"[a-p]|t\d+|column\d+|[kK]_\w+|row|start|stop|part|chunk|piece|block|work|table")
"""Names that templates use for loop variables and the like."""


_RESERVED = frozenset(
    [
        "and",
        "or",
        "xor",
        "not",
        "bool",
        "char",
        "int",
        "long",
        "short",
        "signed",
        "unsigned",
        "float",
        "double",
        "void",
        "auto",
        "break",
        "case",
        "catch",
        "class",
        "const",
        "continue",
        "default",
        "delete",
        "do",
        "else",
        "enum",
        "export",
        "extern",
        "false",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "mutable",
        "namespace",
        "new",
        "operator",
        "private",
        "protected",
        "public",
        "register",
        "return",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typename",
        "union",
        "using",
        "virtual",
        "volatile",
        "while",
        "asm",
        "bitand",
        "bitor",
        "compl",
        "and_eq",
        "or_eq",
        "xor_eq",
        "not_eq",
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "erf",
        "floor",
        "ceil",
        "round",
        "abs",
        "index",
        "div",
        "main",
        "time",
        "clock",
        "y0",
        "y1",
        "j0",
        "j1",
        "gamma",
        "signgam",
        "std",
    ]
)
