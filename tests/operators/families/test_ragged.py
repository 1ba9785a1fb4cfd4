from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelevolve.operators.template.cpp.ragged import Compact
from kernelevolve.operators.template.cpp.repeat import Repeat
from kernelevolve.operators.template.cpp.segment import Segment
from kernelevolve.operators.template.expr import arg, call, const, index, load
from kernelevolve.operators.template.graph import Op
from tests.operators.families import build

I64, F32 = "int64", "float32"


def two_compacted(n, tail):
    ops = [
        Op("pointwise", ("a",), ("m",), {"expr": call("lt", arg("a", I64), const(3, I64))}),
        Op("compact", ("x", "m"), ("y",)),
        Op("compact", ("z", "m"), ("w",)),
    ]
    return build.graph(
        ops, {"tuple": ["y", "w"]}, a=((n,), I64), x=((n,), I64), z=((n, *tail), F32), m=((n,), "bool"),
        y=(("u0",), I64), w=(("u0", *tail), F32),
    )  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(
    n=st.sampled_from([1, 2, 57, 1000]), tail=st.sampled_from([(), (3,), (2, 2)]),
    kept=st.sampled_from([0.0, 0.5, 1.0]),
    threads=st.sampled_from(["many", "one"]), copy=st.sampled_from(["always", "branch"]),
)  # fmt: skip
def test_rows_kept_by_a_mask_none_and_all_included(n, tail, kept, threads, copy):
    t = {"a": torch.where(torch.rand(n) < kept, 0, 9), "x": torch.randint(0, 99, (n,)), "z": torch.randn(n, *tail)}
    got = build.run(two_compacted(n, tail), Compact(), t, threads=threads, copy=copy)
    assert torch.equal(got["y"], t["x"][t["a"] < 3])
    assert torch.equal(got["w"], t["z"][t["a"] < 3])


def lengths_of(k):
    lengths = torch.randint(0, 5, (k,))
    lengths[k // 2] = 40
    return lengths


@settings(max_examples=8, deadline=None)
@given(
    k=st.sampled_from([1, 7, 300]), kept=st.sampled_from([0.0, 0.5, 1.0]), threads=st.sampled_from(["many", "one"]),
    copy=st.sampled_from(["ahead", "loop"]),
)  # fmt: skip
def test_whole_segments_kept_by_a_repeated_mask_empty_ones_included(k, kept, threads, copy):
    lengths = lengths_of(k)
    n = int(lengths.sum())
    ops = [Op("repeat", ("k", "len"), ("m",)), Op("compact", ("x", "m"), ("y",))]
    g = build.graph(
        ops, "y", k=((k,), "bool"), len=((k,), I64), x=((n,), I64), m=((n,), "bool"), y=(("u0",), I64)
    )  # fmt: skip
    t = {"k": torch.rand(k) < kept, "len": lengths, "x": torch.randint(0, 99, (n,))}
    got = build.run(g, Compact(), t, threads=threads, copy=copy)["y"]
    assert torch.equal(got, t["x"][t["k"].repeat_interleave(lengths)])


@pytest.mark.parametrize("k", [1, 7, 300])
@pytest.mark.parametrize("tail", [(), (3,)])
@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("threads", ["many", "one"])
def test_values_repeated_by_lengths_with_an_epilogue_that_knows_its_position(k, tail, sized, threads):
    lengths = lengths_of(k)
    n = int(lengths.sum())
    out = (n if sized else "u0", *tail)
    where = call("sub", index(-1 - len(tail)), arg("r", I64))
    ops = [
        Op("repeat", ("x", "len"), ("r",)),
        Op("pointwise", ("r",), ("z",), {"expr": call("lt", where, const(2, I64))}),
    ]
    g = build.graph(ops, "z", x=((k, *tail), I64), len=((k,), I64), r=(out, I64), z=(out, "bool"))
    x = torch.randint(0, n + 2, (k, *tail))
    got = build.run(g, Repeat(), {"x": x, "len": lengths}, threads=threads)["z"]
    position = torch.arange(n).view(-1, *[1] * len(tail))
    assert torch.equal(got, position - x.repeat_interleave(lengths, 0) < 2)


@settings(max_examples=8, deadline=None)
@given(
    op=st.sampled_from(["sum", "mean", "max"]), width=st.sampled_from([1, 7, 64, 130]), bags=st.sampled_from([1, 9]),
    entries=st.sampled_from([1, 33]), closed=st.booleans(), ahead=st.sampled_from([0, 16]),
)  # fmt: skip
def test_bags_of_table_rows_empty_ones_included(op, width, bags, entries, closed, ahead):
    cuts = torch.sort(torch.randint(0, entries + 1, (bags - 1,))).values
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), cuts, torch.tensor([entries] * closed, dtype=torch.int64)])
    row = load("idx", I64, index(-2))
    ops = [
        Op("pointwise", ("table", "idx"), ("g",), {"expr": load("table", F32, row, index(-1))}),
        Op("segment", ("g", "off"), ("y",), {"op": op}),
    ]
    g = build.graph(
        ops, "y", table=((20, width), F32), idx=((entries,), I64), off=((bags + closed,), I64),
        g=((entries, width), F32), y=((bags, width), F32),
    )  # fmt: skip
    t = {"table": torch.randn(20, width), "idx": torch.randint(0, 20, (entries,)), "off": offsets}
    want = F.embedding_bag(t["idx"], t["table"], offsets, mode=op, include_last_offset=closed)
    torch.testing.assert_close(build.run(g, Segment(), t, ahead=ahead)["y"], want, rtol=1e-5, atol=1e-5)
