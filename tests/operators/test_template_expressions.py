"""Expressions, index arithmetic, inlining and dialects, against numpy."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelevolve.operators.template import expr as ex
from kernelevolve.operators.template.affine import affine, identity, ranges_of, ravel, simplify, strides_of, unravel
from kernelevolve.operators.template.cpp.dialect import Cpp, float_literal, identifier
from kernelevolve.operators.template.cpp.prelude import prelude
from kernelevolve.operators.template.expr import Expr, call, cast, const, index
from kernelevolve.operators.template.fuse import Region
from kernelevolve.operators.template.graph import Graph, Op, Value
from kernelevolve.operators.template.scalar import Dialect, Scope


class Numpy(Dialect):
    """A second language: statements over whole index grids. What works here holds no C++."""

    name = "numpy"
    types: ClassVar[Mapping[str, str]] = {"float32": "np.float32", "int64": "np.int64", "bool": "np.bool_"}
    functions: ClassVar[Mapping[str, str]] = {
        "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "neg": "(-{0})", "abs": "np.abs({0})",
        "max": "np.maximum({0}, {1})", "min": "np.minimum({0}, {1})", "where": "np.where({0}, {1}, {2})", "lt":
        "({0} < {1})",
        "floordiv": "({0} // {1})", "mod": "({0} % {1})", "exp": "np.exp({0})", "tanh": "np.tanh({0})",
        "ge": "({0} >= {1})",
    }  # fmt: skip

    def constant(self, e: Expr) -> str:
        return f"{self.types[e.dtype]}({e.value!r})"

    def convert(self, text: str, source: str, target: str) -> str:
        return f"{text}.astype({self.types[target]})"

    def element(self, e: Expr, offset: str) -> str:
        return f"{e.value}.reshape(-1)[{offset}]"

    def search(self, e: Expr, x: str) -> str:
        return f"np.searchsorted({e.value}, {x})"

    def declare(self, name: str, dtype: str, text: str) -> str:
        return f"{name} = {text}"


def evaluate(e: Expr, shape: tuple[int, ...], arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Run an expression's statements on index grids."""
    grid = np.indices(shape)
    indices = {d - len(shape): f"i{d}" for d in range(len(shape))}
    scope = Scope(Numpy(), None, indices)
    scope.expect(e)
    text = scope.value(e)
    names: dict[str, Any] = {"np": np, **arrays, **{f"i{d}": grid[d] for d in range(len(shape))}}
    with np.errstate(all="ignore"):
        exec("\n".join([*scope.lines, f"result = {text}"]), names)
    return np.broadcast_to(names["result"], shape)


SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple)


@st.composite
def positions(draw: st.DrawFn, shape: tuple[int, ...], depth: int = 3) -> Expr:
    """Integer expressions over the indices of a nest."""
    if depth == 0 or draw(st.booleans()):
        return (
            index(draw(st.integers(-len(shape), -1)))
            if draw(st.booleans())
            else const(draw(st.integers(-20, 20)), "int64")
        )
    op = draw(st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "max", "min"]))
    left = draw(positions(shape, depth - 1))
    if op in ("mul", "floordiv", "mod"):
        return call(op, left, const(draw(st.integers(1, 12)), "int64"))
    return call(op, left, draw(positions(shape, depth - 1)))


@given(st.data(), SHAPES)
def test_simplified_positions_have_the_same_values(data: st.DataObject, shape: tuple[int, ...]) -> None:
    e = data.draw(positions(shape))
    assert np.array_equal(evaluate(e, shape, {}), evaluate(simplify(e, ranges_of(shape)), shape, {}))
    assert np.array_equal(evaluate(e, shape, {}), evaluate(affine(e, ranges_of(shape)).expr(), shape, {}))


@given(st.data(), SHAPES)
def test_bounds_of_positions_hold(data: st.DataObject, shape: tuple[int, ...]) -> None:
    e = data.draw(positions(shape))
    low, high = affine(e, ranges_of(shape)).range(ranges_of(shape))
    values = evaluate(e, shape, {})
    assert low <= values.min()
    assert values.max() <= high


@given(SHAPES, st.randoms())
def test_a_reshape_and_back_leaves_no_division(shape: tuple[int, ...], rng: Any) -> None:
    flat = ravel(identity(len(shape)), strides_of(shape))
    other = unravel(flat, (int(np.prod(shape)),))
    back = unravel(ravel(other, (1,)), shape)
    for d, p in enumerate(back):
        expected = const(0, "int64") if shape[d] == 1 else index(d - len(shape))
        assert simplify(p, ranges_of(shape)) is expected


def test_a_merge_of_two_dimensions_and_a_split_is_seen_through() -> None:
    ranges = ranges_of((8, 16, 32))
    merged = call("add", call("mul", index(-3), const(16, "int64")), index(-2))
    assert simplify(call("floordiv", merged, const(16, "int64")), ranges) is index(-3)
    assert simplify(call("mod", merged, const(16, "int64")), ranges) is index(-2)
    assert simplify(call("lt", index(-1), const(32, "int64")), ranges) is const(True, "bool")


def test_equal_expressions_are_one_object() -> None:
    assert call("add", ex.arg("x", "float32"), const(1.0, "float32")) is call(
        "add", ex.arg("x", "float32"), const(1.0, "float32")
    )
    assert const(0.0, "float32") is not const(-0.0, "float32")
    assert const(1, "int64") is not const(True, "int64")
    assert const(float("nan"), "float32") is const(float("nan"), "float32")
    with pytest.raises(AttributeError):
        const(1, "int64").value = 2


def test_sharing_keeps_large_expressions_small() -> None:
    e = ex.arg("x", "float32")
    for _ in range(200):
        e = e * e + 1.0
    scope = Scope(Cpp(), None, {-1: "i"})
    body = Region(_chain(e), ["y"]).body("y")
    scope.expect(body)
    scope.value(body)
    assert len(scope.lines) < 500


def _chain(e: Expr) -> Graph:
    values = {n: Value(n, (4,), "float32") for n in ("x", "y")}
    return Graph(values, ("x",), {}, (Op("pointwise", ("x",), ("y",), {"expr": e}),), "y")


@st.composite
def scalars(draw: st.DrawFn, names: tuple[str, ...], depth: int = 4) -> Expr:
    """Float expressions over tensors."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if draw(st.booleans()):
            return ex.arg(draw(st.sampled_from(names)), "float32")
        return const(draw(st.floats(-4, 4, width=16)), "float32")
    op = draw(st.sampled_from(["add", "sub", "mul", "max", "min", "neg", "abs", "where", "cast", "tanh"]))
    first = draw(scalars(names, depth - 1))
    if op in ("neg", "abs", "tanh"):
        return call(op, first)
    if op == "cast":
        return cast(index(-1), "float32") + first
    second = draw(scalars(names, depth - 1))
    if op == "where":
        return call("where", call("lt", first, second), draw(scalars(names, depth - 1)), second)
    return call(op, first, second)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, np.ndarray]]:
    """A chain of pointwise operations and views over two inputs, one of them broadcast."""
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    values = {"a": Value("a", (rows, columns), "float32"), "b": Value("b", (columns,), "float32")}
    arrays = {
        "a": rng.normal(size=(rows, columns)).astype(np.float32),
        "b": rng.normal(size=(columns,)).astype(np.float32),
    }
    ops = []
    for k in range(draw(st.integers(1, 4))):
        name = f"v{k}"
        if draw(st.integers(0, 3)) == 0 and ops:
            base = ops[-1].outputs[0]
            strides = strides_of(values[base].shape)
            flipped = draw(st.booleans())
            offset = (values[base].shape[0] - 1) * strides[0] if flipped else 0
            attrs = {"offset": offset, "strides": (-strides[0] if flipped else strides[0], strides[1])}
            ops.append(Op("view", (base,), (name,), attrs))
        else:
            body = draw(scalars(tuple(n for n in values if n == "b" or values[n].shape == (rows, columns))))
            ops.append(Op("pointwise", ex.reads(body), (name,), {"expr": body}))
        values[name] = Value(name, (rows, columns), "float32")
    return Graph(values, ("a", "b"), {}, tuple(ops), ops[-1].outputs[0]), arrays


def by_operation(graph: Graph, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every value, one operation at a time."""
    known = dict(arrays)
    for op in graph.ops:
        shape = graph.values[op.outputs[0]].shape
        if op.kind == "view":
            grid = np.indices(shape)
            flat = op.attrs["offset"] + sum(g * s for g, s in zip(grid, op.attrs["strides"], strict=True))
            known[op.outputs[0]] = known[op.inputs[0]].reshape(-1)[flat]
        else:
            body = Region(graph, op.outputs).body(op.outputs[0])
            known[op.outputs[0]] = evaluate(body, shape, {**known}).astype(np.float32)
    return known


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(graphs())
def test_reading_through_operations_and_views_equals_computing_them_one_by_one(
    case: tuple[Graph, dict[str, np.ndarray]],
) -> None:
    graph, arrays = case
    last = graph.ops[-1].outputs[0]
    inside = [op.name for op in graph.ops if op.kind == "pointwise"]
    expected = by_operation(graph, arrays)[last]
    whole = Region(graph, inside)
    body = simplify(whole.read(last, identity(2)), ranges_of(graph.values[last].shape))
    assert np.array_equal(evaluate(body, graph.values[last].shape, arrays), expected, equal_nan=True)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(scalars(("u", "w"), 5), min_size=20, max_size=20))
def test_cpp_and_numpy_agree_on_random_expressions(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[Expr]
) -> None:
    folder = tmp_path_factory.mktemp("expressions")
    rng = np.random.default_rng(1)
    arrays = {n: rng.normal(size=67).astype(np.float32) for n in ("u", "w")}
    functions, expected = [], []
    for k, e in enumerate(bodies):
        values = {n: Value(n, (67,), "float32") for n in ("u", "w", "y")}
        graph = Graph(values, ("u", "w"), {}, (Op("pointwise", ex.reads(e), ("y",), {"expr": e}),), "y")
        body = Region(graph, ["y"]).body("y")
        scope = Scope(Cpp(), None, {-1: "i"})
        scope.expect(body)
        text = scope.value(body)
        head = f'extern "C" void f{k}(const float* __restrict u, const float* __restrict w, float* __restrict y)'
        functions.append(
            "\n".join([head + " {", "for (int64_t i = 0; i < 67; i++) {", *scope.lines, f"y[i] = {text};", "}", "}"])
        )
        expected.append(evaluate(body, (67,), arrays).astype(np.float32))
    code = "\n".join(functions)
    (folder / "f.cpp").write_text(prelude(code) + code)
    subprocess.run(
        ["g++", "-O1", "-ffp-contract=off", "-march=native", "-shared", "-fPIC", "-o", "f.so", "f.cpp"],
        cwd=folder,
        check=True,
    )
    library = ctypes.CDLL(str(folder / "f.so"))
    for k, want in enumerate(expected):
        got = np.empty(67, np.float32)
        library[f"f{k}"](*(ctypes.c_void_p(x.ctypes.data) for x in (arrays["u"], arrays["w"], got)))
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


@given(st.floats(width=32))
def test_float_literals_read_back_exactly(x: float) -> None:
    text = float_literal(x, "float").strip("()")
    if not text.lstrip("-").startswith("k_"):
        assert np.float32(text.rstrip("f")) == np.float32(x)


@given(st.text(min_size=1, max_size=12))
def test_identifiers_are_legal_and_no_keywords(name: str) -> None:
    text = identifier("x" + name)
    assert text.isascii()
    assert text.isidentifier()
    assert identifier("double") != "double"
    assert identifier("k") != "k"
