from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelevolve.operators.template.cpp.scan import Scan
from kernelevolve.operators.template.expr import arg, call
from kernelevolve.operators.template.graph import Op
from tests.operators.families import build

F32 = "float32"
FORWARD = {
    "sum": lambda x, d: x.cumsum(d), "prod": lambda x, d: x.cumprod(d),
    "max": lambda x, d: x.cummax(d).values, "min": lambda x, d: x.cummin(d).values,
}  # fmt: skip


def scaled_scan(shape, dim, op, *, reverse=False, exclusive=False, dtype=F32):
    row = tuple(1 if d == dim else n for d, n in enumerate(shape))
    ops = [
        Op("pointwise", ("x",), ("s",), {"expr": call("neg", arg("x", dtype))}),
        Op("scan", ("s",), ("y",), {"op": op, "dim": dim, "reverse": reverse, "exclusive": exclusive}),
        Op("pointwise", ("y", "k"), ("z",), {"expr": call("mul", arg("y", dtype), arg("k", dtype))}),
    ]
    values = {"x": (shape, dtype), "k": (row, dtype), "s": (shape, dtype), "y": (shape, dtype), "z": (shape, dtype)}
    return build.graph(ops, "z", **values)


def expected(x, k, dim, op, *, reverse=False, exclusive=False):
    x = -x
    y = FORWARD[op](x.flip(dim) if reverse else x, dim)
    if exclusive:
        start = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}[op]
        y = torch.cat([torch.full_like(y.narrow(dim, 0, 1), start), y.narrow(dim, 0, y.shape[dim] - 1)], dim)
    return (y.flip(dim) if reverse else y) * k


SETTINGS = [
    {"prefix": "lanes", "rows": 1, "block": 64}, {"prefix": "rows", "rows": 4, "block": 256},
    {"prefix": "serial", "rows": 2, "block": 1024},
]  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(
    rows=st.sampled_from([1, 2, 5]), length=st.sampled_from([1, 7, 8, 9, 65, 300]), op=st.sampled_from(list(FORWARD)),
    reverse=st.booleans(), exclusive=st.booleans(), choice=st.sampled_from(SETTINGS),
)  # fmt: skip
def test_rows_scan_as_torch_does_for_every_parameter(rows, length, op, reverse, exclusive, choice):
    g = scaled_scan((rows, length), 1, op, reverse=reverse, exclusive=exclusive)
    x, k = torch.rand(rows, length) + 0.5, torch.rand(rows, 1)
    got = build.run(g, Scan(), {"x": x, "k": k}, **choice)["z"]
    want = expected(x, k, 1, op, reverse=reverse, exclusive=exclusive)
    torch.testing.assert_close(got, want, rtol=3e-7, atol=0)


@pytest.mark.parametrize("shape", [(3, 5, 40), (1, 9, 2), (4, 3, 1, 130)])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_columns_scan_side_by_side_along_an_outer_dimension(shape, op):
    g = scaled_scan(shape, 1, op)
    x, k = torch.randn(shape), torch.randn(tuple(1 if d == 1 else n for d, n in enumerate(shape)))
    torch.testing.assert_close(build.run(g, Scan(), {"x": x, "k": k})["z"], expected(x, k, 1, op), rtol=3e-7, atol=0)


@pytest.mark.parametrize("pieces", [1, 4])
def test_sums_stay_as_close_to_the_truth_as_torch(pieces):
    g = scaled_scan((2, 50001), 1, "sum")
    x, k = torch.randn(2, 50001), torch.ones(2, 1)
    truth = -x.double().cumsum(1)
    own = (build.run(g, Scan(), {"x": x, "k": k}, pieces=pieces)["z"] - truth).norm()
    assert own <= 1.01 * (-x.cumsum(1) - truth).norm()


def test_integers_are_exact():
    g = scaled_scan((3, 100), 1, "sum", dtype="int64")
    x = torch.randint(-(1 << 40), 1 << 40, (3, 100))
    got = build.run(g, Scan(), {"x": x, "k": torch.ones(3, 1, dtype=torch.int64)})["z"]
    assert torch.equal(got, (-x).cumsum(1))


def test_a_nan_stays_from_where_it_appears():
    x = torch.tensor([[1.0, 3.0, float("nan"), 9.0] + [0.0] * 20])
    got = build.run(scaled_scan((1, 24), 1, "max"), Scan(), {"x": x, "k": torch.ones(1, 1)})["z"]
    assert torch.equal(got.isnan(), (-x).cummax(1).values.isnan())
