"""Pointwise kernels against PyTorch."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.operators.build import check, problem_of

EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.5,
    88.0,
    -88.0,
    104.0,
    1e-30,
    -1e-30,
    1e30,
    -1e30,
    math.inf,
    -math.inf,
    math.nan,
    20.5,
    -20.5,
    0.3,
]


def edge_input() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.cat([torch.tensor(EDGES), torch.randn(317) * 3]).reshape(1, 337)


def test_activations_agree_with_torch_also_at_zero_infinity_and_nan(tmp_path: Path) -> None:
    forward = """
        return (F.relu(x), F.gelu(x.clamp(-1e30, 1e30)), F.gelu(x, approximate="tanh"), F.silu(x),
                torch.sigmoid(x), F.softplus(x), F.hardswish(x),
                F.leaky_relu(x, 0.1), F.mish(x), F.elu(x, 0.7), F.selu(x), F.celu(x, 1.3), F.relu6(x),
                F.hardtanh(x), F.softsign(x),
                F.logsigmoid(x), F.hardsigmoid(x), F.threshold(x, 0.2, -1.0), F.hardshrink(x), F.softshrink(x),
                torch.tanh(x))
    """
    written = check(problem_of(forward, "torch.randn(1, 337)"), tmp_path, inputs=[edge_input()])
    assert written.own_kernels == 1


def test_arithmetic_agrees_with_torch(tmp_path: Path) -> None:
    forward = """
        y = x * 2.0 + 1
        return (x - y, 3 - x, x / 7, x / 8, x // 0.75, x % 0.75, torch.fmod(x, 0.75), x ** 2, x ** 3, x **
                -1, x ** 0.5, x ** 2.5,
                torch.maximum(x, y), torch.minimum(x, y), x.clamp(-1, 2), x.clamp(min=0.5), x.abs(), x.sign(),
                x.floor(),
                x.ceil(), x.round(), x.trunc(), x.exp(), x.log(), x.log1p(), x.expm1(), x.sqrt(), x.rsqrt(),
                torch.erf(x), x.square(),
                torch.sin(x.clamp(-1e4, 1e4)), torch.cos(x.clamp(-1e4, 1e4)), torch.atan2(x, y), torch.lerp(x, y, 0.3),
                torch.addcmul(x, y, x, value=0.5), x.exp2(), x.log2(), x.log10(), torch.where(x > y, x, 0.0),
                x.masked_fill(x < 0, 9.0))
    """
    check(problem_of(forward, "torch.randn(1, 337)"), tmp_path, inputs=[edge_input()])


def test_comparisons_and_integers_are_exact(tmp_path: Path) -> None:
    forward = """
        return (x < y, x <= 2, x == y, x != y, x > 1.5, (x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y >
                0), ~(x > y), x + y, x * y - 3,
                x // 3, x % 3, -x, x.abs(), x & y, x | y, x ^ y, ~x, x.to(torch.float32) / 3, x / y,
                x.to(torch.int32), x.to(torch.bool),
                torch.where(x > y, x, y), x.clamp(-2, 2), torch.logical_not(x), x.to(torch.float64) * 0.1,
                x.float().to(torch.int64))
    """
    problem = problem_of(forward, "torch.randint(-9, 9, (5, 13)), torch.randint(1, 9, (5, 13))", arguments="x, y")
    check(problem, tmp_path)


@pytest.mark.parametrize(
    "inputs",
    [
        "torch.randn(7, 1, 33), torch.randn(5, 1), torch.randn(33)",
        "torch.randn(1, 1, 1), torch.randn(1, 1), torch.randn(1)",
        "torch.randn(2, 3, 128), torch.randn(3, 1), torch.randn(1)",
    ],
)
def test_broadcasting_agrees_with_torch(tmp_path: Path, inputs: str) -> None:
    check(problem_of("return (a + b) * c, a - c", inputs, arguments="a, b, c"), tmp_path)


def test_views_are_read_through(tmp_path: Path) -> None:
    forward = """
        t = x.transpose(0, 1) * 2
        u = t.reshape(3, 4, 10).permute(2, 0, 1) + 1
        v = x[1:, ::2].flip(0)
        return (t.contiguous() + 1, u * u, v.exp(), x.view(-1)[3:9] + 1, x[2] - x[:, 0].sum(), torch.roll(x, 2, 1) - x,
                x.unsqueeze(1).expand(12, 4, 10) * 3, x.repeat(2, 3) + 1, F.pad(x, (1, 2)) + 1, torch.tril(x) * 2)
    """
    check(problem_of(forward, "torch.randn(12, 10)"), tmp_path)


def test_cat_and_stack_are_pieces_of_a_loop(tmp_path: Path) -> None:
    forward = """
        a, b = x.chunk(2, dim=-1)
        r = torch.cat([-b, a], dim=-1)
        return r * x, torch.stack([a, b * 2, a + b], dim=1), torch.cat([x, x[:3]], dim=0).exp()
    """
    check(problem_of(forward, "torch.randn(6, 40)"), tmp_path)


def test_gathers_and_searches_are_exact(tmp_path: Path) -> None:
    forward = """
        i = torch.bucketize(x, self.table)
        j = torch.bucketize(x, self.table, right=True)
        k = torch.searchsorted(self.ids, n)
        row = F.embedding(n % 10, self.rows)
        return i, j, self.weight[i.clamp(max=9)], self.rows[n % 10], k, row, self.rows.index_select(0, n[0] % 10)
    """
    setup = """
        self.register_buffer("table", torch.tensor([-1.0, -0.5, 0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0]))
        self.register_buffer("ids", torch.arange(0, 3000, 3))
        self.register_buffer("weight", torch.randn(10))
        self.register_buffer("rows", torch.randn(10, 6))
    """
    x = torch.cat(
        [torch.randn(190), torch.tensor([0.0, -0.5, 2.0, 1.0, math.nan, math.inf, -math.inf, 0.25, 9.0, -9.0])]
    )
    problem = problem_of(forward, "torch.randn(4, 50), torch.randint(0, 3100, (4, 50))", setup, "x, n")
    check(problem, tmp_path, inputs=[x.reshape(4, 50), torch.randint(0, 3100, (4, 50))])


def test_half_precision_is_computed_in_float_and_rounded_once(tmp_path: Path) -> None:
    forward = "return x * 0.5 + 1, (x.float() * 3).to(torch.bfloat16), y * 2"
    inputs = "torch.randn(3, 65).to(torch.bfloat16), torch.randn(3, 65).to(torch.float16)"
    check(problem_of(forward, inputs, arguments="x, y"), tmp_path, ulps=1)


def test_double_precision_is_kept(tmp_path: Path) -> None:
    check(
        problem_of("return torch.exp(x) + torch.sigmoid(x) * torch.tanh(x)", "torch.randn(4, 9, dtype=torch.float64)"),
        tmp_path,
    )
