from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelevolve.operators.template.cpp.matmul import MatMul
from kernelevolve.operators.template.expr import arg, call, const, index, load
from kernelevolve.operators.template.graph import Op
from tests.operators.families import build

F32 = "float32"


def layer(m, n, k, *, transposed, batch=()):
    """relu(x W + bias) + residual."""
    weight = (n, k) if transposed else (k, n)
    ops = [
        Op("matmul", ("x", "w"), ("y",), {"transpose_a": False, "transpose_b": transposed}),
        Op("pointwise", ("y", "bias"), ("b",), {"expr": call("add", arg("y", F32), arg("bias", F32))}),
        Op("pointwise", ("b", "r"), ("z",), {
            "expr": call("add", call("max", arg("b", F32), const(0.0, F32)), arg("r", F32))}),
    ]  # fmt: skip
    out = (*batch, m, n)
    return build.graph(
        ops, "z", x=((*batch, m, k), F32), w=(weight, F32), bias=((n,), F32), r=(out, F32),
        y=(out, F32), b=(out, F32), z=(out, F32),
    )  # fmt: skip


def inputs(g):
    return {n: torch.randn(g.values[n].shape) for n in g.inputs}


def layer_expected(t, transposed):
    w = t["w"].T if transposed else t["w"]
    return torch.relu(t["x"] @ w + t["bias"]) + t["r"]


CHOICES = [
    {}, {"rows": 1}, {"vectors": 1, "simd": 8}, {"strips": 1, "order": "rows"}, {"pack": "private"}, {"pack": "shared"},
]  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(
    m=st.sampled_from([1, 3, 13, 37]), n=st.sampled_from([1, 16, 50, 97]), k=st.sampled_from([1, 9, 64]),
    transposed=st.booleans(), choice=st.sampled_from(CHOICES),
)  # fmt: skip
def test_a_linear_layer_with_its_epilogue_for_every_parameter(m, n, k, transposed, choice):
    g = layer(m, n, k, transposed=transposed)
    t = inputs(g)
    known = {p.name: p.choices for p in MatMul().parameters(g, ("y", "b", "z"), {"vector_lanes_fp32": 16})}
    choice = {name: value for name, value in choice.items() if name in known}
    got = build.run(g, MatMul(), t, **choice)["z"]
    torch.testing.assert_close(got, layer_expected(t, transposed), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("choice", [{"form": "dot"}, {"form": "tiles"}, {"depth": 128}, {"form": "dot", "strips": 1}])
def test_few_rows_and_a_long_sum(choice):
    g = layer(6, 45, 301, transposed=True)
    t = inputs(g)
    torch.testing.assert_close(build.run(g, MatMul(), t, **choice)["z"], layer_expected(t, True), rtol=1e-5, atol=1e-4)


def test_reading_the_right_operand_in_place_never_reads_past_its_end():
    g = layer(5, 70, 33, transposed=False)
    t = inputs(g)
    t["w"] = torch.cat([t["w"].flatten(), torch.full((200,), float("nan"))])[: 33 * 70].view(33, 70)
    got = build.run(g, MatMul(), t, pack="none")["z"]
    torch.testing.assert_close(got, layer_expected(t, False), rtol=1e-5, atol=1e-5)


def test_a_shared_weight_turns_a_batch_into_rows():
    g = layer(7, 20, 12, transposed=True, batch=(3, 2))
    t = inputs(g)
    k = build.kernel(g, MatMul())
    assert "1 x (42 x 12)" in MatMul().emit(g, k).notes[0]
    torch.testing.assert_close(build.run(g, MatMul(), t)["z"], layer_expected(t, True), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shapes", [((4, 5, 6), (4, 6, 7)), ((2, 1, 3, 9), (5, 9, 4)), ((3, 8, 8), (1, 8, 40))])
@pytest.mark.parametrize("pack", ["private", "shared", "none"])
def test_batches_broadcast(shapes, pack):
    a, b = shapes
    out = tuple(torch.matmul(torch.empty(a), torch.empty(b)).shape)
    g = build.graph([Op("matmul", ("a", "b"), ("y",), {})], "y", a=(a, F32), b=(b, F32), y=(out, F32))
    t = inputs(g)
    torch.testing.assert_close(build.run(g, MatMul(), t, pack=pack)["y"], t["a"] @ t["b"], rtol=1e-5, atol=1e-5)


def test_an_operand_may_be_computed_on_the_way_and_seen_through_a_view():
    ops = [
        Op("pointwise", ("x",), ("e",), {"expr": call("mul", arg("x", F32), arg("x", F32))}),
        Op("view", ("w",), ("wt",), {"offset": 0, "strides": (1, 11)}),
        Op("matmul", ("e", "wt"), ("y",), {}),
    ]
    square, weight = ((9, 11), F32), ((14, 11), F32)
    g = build.graph(ops, "y", x=square, w=weight, e=square, wt=((11, 14), F32), y=((9, 14), F32))
    t = inputs(g)
    torch.testing.assert_close(build.run(g, MatMul(), t)["y"], t["x"] ** 2 @ t["w"].T, rtol=1e-5, atol=1e-5)


def test_an_epilogue_may_gather_from_its_batch_but_not_from_another():
    pairs = torch.tril_indices(9, 9, -1)
    ops = [
        Op("view", ("x",), ("xt",), {"offset": 0, "strides": (45, 1, 5)}),
        Op("matmul", ("x", "xt"), ("p",), {}),
        Op("pointwise", ("p", "i", "j"), ("z",), {
            "expr": load("p", F32, index(-2), arg("i", "int64"), arg("j", "int64"))}),
    ]  # fmt: skip
    shapes = {"x": ((6, 9, 5), F32), "i": ((36,), "int64"), "j": ((36,), "int64"), "xt": ((6, 5, 9), F32),
              "p": ((6, 9, 9), F32), "z": ((6, 36), F32)}  # fmt: skip
    g = build.graph(ops, "z", **shapes)
    x = torch.randn(6, 9, 5)
    got = build.run(g, MatMul(), {"x": x, "i": pairs[0].clone(), "j": pairs[1].clone()})["z"]
    torch.testing.assert_close(got, (x @ x.mT)[:, pairs[0], pairs[1]], rtol=1e-5, atol=1e-5)
    first = load("p", F32, const(0, "int64"), arg("i", "int64"), arg("j", "int64"))
    ops[2] = Op("pointwise", ("p", "i", "j"), ("z",), {"expr": first})
    assert not MatMul().covers(build.graph(ops, "z", **shapes), ("p", "z"))


def test_doubles_are_doubles():
    ops = [Op("matmul", ("a", "b"), ("y",), {})]
    g = build.graph(ops, "y", a=((10, 30), "float64"), b=((30, 21), "float64"), y=((10, 21), "float64"))
    a, b = torch.randn(10, 30, dtype=torch.float64), torch.randn(30, 21, dtype=torch.float64)
    torch.testing.assert_close(build.run(g, MatMul(), {"a": a, "b": b})["y"], a @ b, rtol=1e-13, atol=1e-13)
