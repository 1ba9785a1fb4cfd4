"""Reductions over the last and over other dimensions against PyTorch."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch

from kernelevolve.operators.template import genome as genomes
from tests.operators.build import FACTS, check, graph_of, problem_of

NORMS = """
    return (F.softmax(x, -1), F.log_softmax(x, -1), F.layer_norm(x, (x.shape[-1],), self.w, self.b),
            F.rms_norm(x, (x.shape[-1],), self.w),
            x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6))
"""
STATISTICS = """
    return (x.sum({d}), x.mean({d}, keepdim=True), x.amax({d}), x.amin({d}), x.var({d}), x.std({d},
            unbiased=False), (x > 0).any({d}),
            (x > -3).all({d}), x.argmax({d}), x.argmin({d}), *x.max({d}), x.logsumexp({d}), x.norm(p=1, dim={d}),
            x.prod({d}), x.softmax({d}))
"""


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 5, 131)])
def test_norms_and_softmax_agree_with_torch(tmp_path: Path, shape: tuple[int, ...]) -> None:
    n = shape[-1]
    setup = f"self.w = torch.nn.Parameter(torch.randn({n})); self.b = torch.nn.Parameter(torch.randn({n}))"
    check(problem_of(NORMS, f"torch.randn{shape}", setup), tmp_path)


@pytest.mark.parametrize(
    ("shape", "dim"), [((5, 67), 1), ((4, 37, 19), 1), ((70, 1), 0), ((70, 1), 1), ((3, 64, 5), 0)]
)
def test_reductions_agree_with_torch(tmp_path: Path, shape: tuple[int, ...], dim: int) -> None:
    check(problem_of(STATISTICS.replace("{d}", str(dim)), f"torch.randn{shape}"), tmp_path)


@pytest.mark.parametrize("dim", [0, 1])
def test_nan_and_infinity_come_out_as_from_torch(tmp_path: Path, dim: int) -> None:
    x = torch.randn(40, 40)
    x[3, 4], x[5, 6], x[7, 8] = math.nan, math.inf, -math.inf
    x[:, 9] = -math.inf
    x[9, :] = -math.inf
    forward = (
        f"return x.amax({dim}), x.amin({dim}), x.sum({dim}), x.softmax({dim}), x.logsumexp({dim}), x.argmax({dim})"
    )
    check(problem_of(forward, "torch.randn(40, 40)"), tmp_path, inputs=[x])


def test_full_reductions_and_losses_agree_with_torch(tmp_path: Path) -> None:
    forward = """
        return (x.sum(), x.mean(), x.max(), F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"),
                F.smooth_l1_loss(x, y), F.huber_loss(x, y),
                F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.cross_entropy(x, t),
                F.nll_loss(F.log_softmax(x, -1), t),
                F.kl_div(F.log_softmax(x, -1), y.softmax(-1), reduction="batchmean"))
    """
    inputs = "torch.randn(33, 50), torch.randn(33, 50), torch.randint(0, 50, (33,))"
    check(problem_of(forward, inputs, arguments="x, y, t"), tmp_path)


def test_batch_group_and_instance_norm_agree_with_torch(tmp_path: Path) -> None:
    forward = """
        return (F.batch_norm(x, self.m, self.v, self.w, self.b), F.batch_norm(x, None, None, self.w, self.b,
                training=True),
                F.group_norm(x, 2, self.w, self.b), F.instance_norm(x))
    """
    setup = """
        self.w = torch.nn.Parameter(torch.randn(6))
        self.b = torch.nn.Parameter(torch.randn(6))
        self.register_buffer("m", torch.randn(6))
        self.register_buffer("v", torch.rand(6) + 0.5)
    """
    check(problem_of(forward, "torch.randn(3, 6, 5, 7)", setup), tmp_path)


def test_a_long_sum_is_as_accurate_as_torchs(tmp_path: Path) -> None:
    problem = problem_of("return x.sum(-1), x.sum()", "torch.rand(2, 300001)")
    check(problem, tmp_path, ulps=8)


@pytest.mark.parametrize("seed", range(4))
def test_random_decisions_change_nothing_but_time(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    shape = rng.choice([(37, 129), (2, 1000), (1, 4099), (9, 16)])
    forward = """
        y = x * 2
        e = torch.exp(y - y.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True), y, x.softmax(0), x.std(0), x.var(-1)
    """
    problem = problem_of(forward, f"torch.randn{shape}")
    graph = graph_of(problem)
    start = genomes.drafts(graph, FACTS, random.Random(0))[0]
    check(problem, tmp_path, genome=genomes.random_genome(graph, start, FACTS, rng))


def test_rewritten_formulas_stay_accurate_also_behind_an_outlier(tmp_path: Path) -> None:
    problem = problem_of("return F.layer_norm(x, (500,)), F.softmax(x, -1)", "torch.randn(6, 500) * 0.1 + 5")
    graph = graph_of(problem)
    genome = genomes.drafts(graph, FACTS, random.Random(0))[0]
    offered = {p.name for k in genome["kernels"] for p in genomes.parameters(graph, k, FACTS)}
    assert {"variance", "division"} <= offered
    for kernel in genome["kernels"]:
        kernel["params"].update(variance="one_pass", division="reciprocal")
    x = torch.randn(6, 500) * 0.1 + 5
    x[:, 0] = 7.0
    check(problem, tmp_path, genome=genome, inputs=[x], ulps=256)


def test_a_division_below_a_rounding_is_never_rewritten() -> None:
    problem = problem_of("return (x / x.abs().amax(-1, keepdim=True) * 127).round()", "torch.randn(8, 64)")
    graph = graph_of(problem)
    genome = genomes.drafts(graph, FACTS, random.Random(0))[0]
    assert "division" not in {p.name for k in genome["kernels"] for p in genomes.parameters(graph, k, FACTS)}
