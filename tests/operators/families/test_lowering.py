from __future__ import annotations

import random
from pathlib import Path

import pytest

from kernelevolve.operators.template import genome as genomes
from tests.operators import build

OWN = {
    "linear": ("return F.gelu(self.layer(x))", "torch.randn(3, 5, 12)", "self.layer = torch.nn.Linear(12, 7)"),
    "linear of a vector": ("return self.layer(x)", "torch.randn(12)", "self.layer = torch.nn.Linear(12, 7)"),
    "matrix times vector": ("return x @ self.v", "torch.randn(4, 6)", "self.v = torch.nn.Parameter(torch.randn(6))"),
    "dot": ("return x @ x", "torch.randn(33)", ""),
    "addmm": ("return torch.addmm(x, x, self.w, beta=0.5, alpha=2.0)", "torch.randn(9, 9)",
              "self.w = torch.nn.Parameter(torch.randn(9, 9))"),
    "baddbmm": ("return torch.baddbmm(x, x, x.mT)", "torch.randn(2, 8, 8)", ""),
    "scores and values": ("return torch.softmax(x @ x.mT / 3, -1) @ x", "torch.randn(2, 3, 10, 4)", ""),
    "conv1d": ("return torch.relu(self.c(x)) + 1", "torch.randn(2, 4, 19)", "self.c = torch.nn.Conv1d(4, 6, 3, 2, 1)"),
    "conv2d same": ("return self.c(x)", "torch.randn(1, 4, 9, 8)",
                    "self.c = torch.nn.Conv2d(4, 4, 3, padding='same', groups=2, bias=False)"),
    "pools": ("return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), "
              "F.adaptive_avg_pool2d(x, (4, 2))", "torch.randn(2, 3, 8, 8)", ""),
    "scans": ("return x.cumsum(-1) * 2, x.cumprod(0), x.cummax(1).values, (x > 0).cumsum(0)", "torch.randn(6, 11)", ""),
    "topk": ("v, n = x.topk(3)\nreturn v.softmax(-1), n", "torch.randperm(70).view(7, 10).float()", ""),
    "sort": ("v, n = x.sort(dim=0, descending=True)\nreturn v * 2, n, x.argsort(-1)", "torch.randn(7, 10)", ""),
    "masks": ("return x[x[:, 0] > 0], x[x > 0], torch.masked_select(x, x < 0), (x > 1).nonzero()",
              "torch.randn(40, 3)", ""),
    "repeats": ("return x.repeat_interleave(self.n, 0), self.n.repeat_interleave(self.n), x.repeat_interleave(3, 1)",
                "torch.randn(3, 5)", "self.register_buffer('n', torch.tensor([2, 0, 4]))"),
    "bags": ("return F.embedding_bag(x, self.t, self.o, mode='mean')", "torch.randint(0, 9, (20,))",
             "self.t = torch.nn.Parameter(torch.randn(9, 6)); self.register_buffer('o', torch.tensor([0, 3, 3, 18]))"),
}  # fmt: skip
"""forward, input, setup: nothing of these may stay in PyTorch."""


@pytest.mark.parametrize("name", OWN)
def test_an_operator_runs_in_kernels_of_its_own(name: str, tmp_path: Path):
    forward, inputs, setup = OWN[name]
    written = build.check(build.problem_of(forward, inputs, setup), tmp_path)
    assert written.in_pytorch == ()
    assert written.own_kernels > 0


def test_unfused_drafts_agree_too(tmp_path: Path):
    forward, inputs, setup = OWN["linear"]
    problem = build.problem_of(forward, inputs, setup)
    graph = build.graph_of(problem)
    drafts = genomes.drafts(graph, build.FACTS, random.Random(0))
    most = max(drafts, key=lambda genome: len(genome["kernels"]))
    assert len(most["kernels"]) > 1
    build.check(problem, tmp_path, genome=most)


LEFT = {
    "transposed convolution": ("return self.c(x) + 1", "torch.randn(2, 4, 19)",
                               "self.c = torch.nn.ConvTranspose1d(4, 6, 3)"),
    "positions of maxima": ("v, n = F.max_pool1d(x, 2, return_indices=True)\nreturn v + 1, n",
                            "torch.randn(2, 4, 20)", ""),
    "half precision product": ("return (x @ x).float() + 1", "torch.randn(8, 8, dtype=torch.bfloat16)", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_what_no_family_computes_stays_in_pytorch_and_the_rest_is_right(name: str, tmp_path: Path):
    forward, inputs, setup = LEFT[name]
    assert build.check(build.problem_of(forward, inputs, setup), tmp_path).in_pytorch
