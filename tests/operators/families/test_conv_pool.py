from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelevolve.operators.template.cpp.conv import Conv
from kernelevolve.operators.template.cpp.pool import Pool
from kernelevolve.operators.template.expr import arg, call, const
from kernelevolve.operators.template.graph import Op
from tests.operators.families import build

F32 = "float32"


def convolution(x, w, stride, padding, dilation, groups, *, bias=True):
    rank = len(x) - 2
    sizes = zip(x[2:], w[2:], stride, padding, dilation, strict=True)
    y = (x[0], w[0], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes))
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    ops = [
        Op("conv", ("x", "w", "b") if bias else ("x", "w"), ("y",), attrs),
        Op("pointwise", ("y",), ("z",), {"expr": call("max", arg("y", F32), const(0.0, F32))}),
    ]
    shapes = {"x": (x, F32), "w": (w, F32), "y": (y, F32), "z": (y, F32)} | ({"b": ((w[0],), F32)} if bias else {})
    function = F.conv1d if rank == 1 else F.conv2d
    return build.graph(ops, "z", **shapes), lambda t: torch.relu(
        function(t["x"], t["w"], t.get("b"), stride, padding, dilation, groups)
    )


@settings(max_examples=8, deadline=None)
@given(
    stride=st.sampled_from([1, 2, 3]), padding=st.sampled_from([0, 1, 3]), dilation=st.sampled_from([1, 2]),
    groups=st.sampled_from([1, 2, 4]), length=st.sampled_from([7, 20, 65]), taps=st.sampled_from([1, 3]),
    choice=st.sampled_from([{"form": "width"}, {"form": "channels"}, {"rows": 1}, {"strips": 1, "simd": 8}]),
)  # fmt: skip
def test_one_dimension_for_every_geometry_and_parameter(stride, padding, dilation, groups, length, taps, choice):
    g, reference = convolution((2, 4, length), (8, 4 // groups, taps), (stride,), (padding,), (dilation,), groups)
    t = {n: torch.randn(g.values[n].shape) for n in g.inputs}
    torch.testing.assert_close(build.run(g, Conv(), t, **choice)["z"], reference(t), rtol=1e-5, atol=1e-5)


CASES = [
    ((2, 6, 19, 23), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 6),
    ((2, 3, 17, 33), (20, 3, 5, 3), (2, 3), (2, 1), (1, 2), 1),
    ((1, 8, 9, 7), (33, 8, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((1, 8, 20, 20), (34, 4, 3, 3), (1, 1), (0, 0), (1, 1), 2),
    ((1, 2, 5, 5), (4, 2, 5, 5), (1, 1), (0, 0), (1, 1), 1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("form", ["width", "channels"])
def test_two_dimensions_in_both_forms(case, form):
    g, reference = convolution(*case, bias=case[5] != 2)
    t = {n: torch.randn(g.values[n].shape) for n in g.inputs}
    torch.testing.assert_close(build.run(g, Conv(), t, form=form)["z"], reference(t), rtol=1e-5, atol=1e-4)


def test_a_transposed_convolution_is_left_alone():
    ops = [Op("conv", ("x", "w"), ("y",), {"transposed": True})]
    g = build.graph(ops, "y", x=((1, 2, 5), F32), w=((2, 2, 3), F32), y=((1, 2, 7), F32))
    assert not Conv().covers(g, ("y",))


def pooling(x, op, kernel, stride, padding, dilation, count_include_pad):
    rank = len(kernel)
    sizes = zip(x[-rank:], kernel, stride, padding, dilation, strict=True)
    y = (*x[:-rank], *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes))
    attrs = {"op": op, "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    ops = [
        Op("pool", ("x",), ("y",), {**attrs, "count_include_pad": count_include_pad}),
        Op("pointwise", ("y",), ("z",), {"expr": call("add", arg("y", F32), const(1.0, F32))}),
    ]
    g = build.graph(ops, "z", x=(x, F32), y=(y, F32), z=(y, F32))
    if op == "max":
        function = F.max_pool1d if rank == 1 else F.max_pool2d
        return g, lambda t: function(t, kernel, stride, padding, dilation) + 1
    average = F.avg_pool1d if rank == 1 else F.avg_pool2d
    return g, lambda t: average(t, kernel, stride, padding, False, count_include_pad) + 1


POOLS = [
    ((2, 3, 17, 23), "max", (3, 3), (2, 2), (1, 1), (1, 1), True),
    ((2, 3, 17, 23), "mean", (3, 2), (2, 3), (1, 1), (1, 1), False),
    ((2, 3, 17, 23), "mean", (3, 3), (1, 1), (1, 1), (1, 1), True),
    ((2, 3, 50), "max", (3,), (1,), (1,), (4,), True),
    ((2, 3, 64), "max", (40,), (3,), (2,), (1,), True),
    ((1, 1, 1, 1), "max", (1, 1), (1, 1), (0, 0), (1, 1), True),
    ((2, 1, 40), "mean", (4,), (4,), (0,), (1,), True),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("columns", ["strided", "split"])
def test_windows_as_torch_takes_them_nan_included(case, columns):
    g, reference = pooling(*case)
    x = torch.randn(case[0])
    x.view(-1)[::97] = float("nan")
    known = [p.name for p in Pool().parameters(g, ("y", "z"), {})]
    got = build.run(g, Pool(), {"x": x}, lines=1, **({"columns": columns} if "columns" in known else {}))["z"]
    torch.testing.assert_close(got, reference(x), rtol=1e-6, atol=1e-6, equal_nan=True)
