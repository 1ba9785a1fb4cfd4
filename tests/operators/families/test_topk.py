from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelevolve.operators.template.cpp.topk import TopK
from kernelevolve.operators.template.expr import arg, call, const
from kernelevolve.operators.template.graph import Op
from tests.operators.families import build


def selection(shape, k, dim, *, largest, dtype):
    out = tuple(k if d == dim else n for d, n in enumerate(shape))
    ops = [
        Op("pointwise", ("x",), ("s",), {"expr": call("mul", arg("x", dtype), const(2, dtype))}),
        Op("topk", ("s",), ("v", "n"), {"k": k, "dim": dim, "largest": largest, "sorted": True}),
        Op("pointwise", ("v",), ("z",), {"expr": call("add", arg("v", dtype), const(1, dtype))}),
    ]
    shapes = {"x": (shape, dtype), "s": (shape, dtype), "v": (out, dtype), "n": (out, "int64"), "z": (out, dtype)}
    return build.graph(ops, {"tuple": ["z", "n"]}, **shapes)


@settings(max_examples=8, deadline=None)
@given(
    shape=st.sampled_from([(7, 64), (3, 33, 5), (1, 1), (4, 130)]), share=st.sampled_from([0.01, 0.2, 1.0]),
    dim=st.sampled_from([0, 1]), largest=st.booleans(), dtype=st.sampled_from(["float32", "int32"]),
    method=st.sampled_from(["select", "threshold", "sort"]),
)  # fmt: skip
def test_distinct_values_come_with_their_places_in_torch_order(shape, share, dim, largest, dtype, method):
    k = max(1, int(share * shape[dim]))
    x = torch.randperm(torch.Size(shape).numel()).view(shape).sub(50).to(getattr(torch, dtype))
    got = build.run(selection(shape, k, dim, largest=largest, dtype=dtype), TopK(), {"x": x}, method=method)
    values, places = torch.topk(x * 2, k, dim, largest)
    assert torch.equal(got["z"], values + 1)
    assert torch.equal(got["n"], places)


@pytest.mark.parametrize("descending", [True, False])
def test_a_sort_is_stable_and_puts_nan_where_torch_does(descending):
    x = torch.tensor([[1.0, float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 1.0, 1.0, float("nan")]])
    ops = [Op("sort", ("x",), ("v", "n"), {"dim": -1, "descending": descending, "stable": True})]
    g = build.graph(ops, {"tuple": ["v", "n"]}, x=((1, 9), "float32"), v=((1, 9), "float32"), n=((1, 9), "int64"))
    values, places = torch.sort(x, stable=True, descending=descending)
    got = build.run(g, TopK(), {"x": x})
    assert torch.equal(got["n"], places)
    torch.testing.assert_close(got["v"], values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("method", ["select", "threshold", "sort"])
def test_of_equal_values_the_first_comes_first(method):
    x = torch.tensor([[3.0, 5.0, 5.0, 1.0, 5.0, 3.0, 0.0, 0.0]])
    got = build.run(selection((1, 8), 4, 1, largest=True, dtype="float32"), TopK(), {"x": x}, method=method)
    assert got["n"].tolist() == [[1, 2, 4, 0]]
