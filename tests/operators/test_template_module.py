"""The written module: what it keeps of the problem, what it needs, what it refuses."""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelevolve.errors import ProblemError
from kernelevolve.operators.template import genome as genomes
from kernelevolve.operators.template import module, problem_source
from kernelevolve.operators.template.capture import capture
from kernelevolve.operators.template.lower import lower
from kernelevolve.records import Problem
from tests.operators.build import FACTS, check, graph_of, load, outputs_of, problem_of

SOURCE = '''
"""Doc."""
import math
import torch
from torch import nn

size = 8
only_for_inputs = 3
CASES = {"tuned": {"size": 8}}


def helper(n):
    return math.sqrt(n)


class Inner(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n) * helper(n))

    def forward(self, x):
        return x * self.weight


class Model(nn.Module):
    """Two layers."""

    def __init__(self, n: int) -> None:
        super(Model, self).__init__()
        self.layers = nn.ModuleList([Inner(n), Inner(n)])  # kept as written

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> dict:
        """x: (size, size)."""
        for layer in self.layers:
            x = layer(x)
        return {"y": x * scale, "both": [x.sum(), (x, None)]}


class Other(Model):
    pass


REFERENCES = {"other": Other}


def get_inputs():
    return [torch.randn(size, size)]


def get_init_inputs():
    return [size]
'''
PROBLEM = Problem(id="test/two_layers", source=SOURCE, code_hash="")


def written(problem: Problem = PROBLEM) -> module.Module:
    graph = graph_of(problem)
    return module.write(problem.source, problem.title, graph, genomes.drafts(graph, FACTS, random.Random(0))[0])


def test_the_same_genome_gives_the_same_source() -> None:
    assert written().source == written().source


def test_constructor_and_what_it_uses_are_kept_and_the_rest_is_dropped() -> None:
    source = written().source
    names = {n.name for n in ast.parse(source).body if isinstance(n, (ast.ClassDef, ast.FunctionDef))}
    assert names == {"build", "helper", "Inner", "ModelNew"}
    assert "super(ModelNew, self).__init__()" in source
    assert "# kept as written" in source
    for gone in ("get_inputs", "CASES", "REFERENCES", "only_for_inputs", "class Other"):
        assert gone not in source


def test_structure_and_values_are_those_of_the_model(tmp_path: Path) -> None:
    source = written().source
    new = load(source, tmp_path, "new").ModelNew(8)
    assert set(new.state_dict()) == {"layers.0.weight", "layers.1.weight"}
    got = new(torch.randn(8, 8))
    assert list(got) == ["y", "both"]
    assert isinstance(got["both"], list)
    assert got["both"][1][1] is None
    expected, have, _ = outputs_of(
        Problem(id="test/x", source=SOURCE.replace("(x, None)", "x"), code_hash=""),
        written(Problem(id="test/x", source=SOURCE.replace("(x, None)", "x"), code_hash="")).source,
        tmp_path,
    )
    for want, value in zip(expected, have, strict=True):
        torch.testing.assert_close(value, want, rtol=1e-5, atol=1e-5)


def test_new_weights_written_in_place_are_seen_by_the_next_call(tmp_path: Path) -> None:
    new = load(written().source, tmp_path, "new").ModelNew(8)
    x = torch.randn(8, 8)
    before = new(x)["y"].clone()
    with torch.no_grad():
        new.layers[0].weight.mul_(3)
    torch.testing.assert_close(new(x)["y"], before * 3)


def test_a_non_contiguous_input_is_taken_and_a_wrong_one_refused(tmp_path: Path) -> None:
    new = load(written().source, tmp_path, "new").ModelNew(8)
    x = torch.randn(8, 8)
    torch.testing.assert_close(new(x.t())["y"], new(x.t().contiguous())["y"])
    with pytest.raises(ValueError, match=r"written for float32 of shape \(8, 8\), got torch.float32 of shape \(4, 8\)"):
        new(torch.randn(4, 8))
    with pytest.raises(ValueError, match="float64"):
        new(x.double())


def test_it_runs_where_this_package_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(written().source)
    (tmp_path / "kernelevolve.py").write_text("raise ImportError('not here')")
    code = "import torch, kernel; print(kernel.ModelNew(8)(torch.ones(8, 8))['y'].shape)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "KERNELEVOLVE_BUILD_DIR": str(tmp_path / "build")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "torch.Size([8, 8])" in done.stdout
    assert "optimized" in (tmp_path / "build" / "kernel.opt").read_text()


def test_a_missing_compiler_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"install the package g\+\+"):
        load(written().source, tmp_path, "new")


def test_a_broken_kernel_raises_with_the_compilers_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVOLVE_BUILD_DIR", str(tmp_path / "build"))
    with pytest.raises(RuntimeError, match="error: "):
        load(
            written().source.replace("float* __restrict y", "flaot* __restrict y").replace("int64_t i", "int65_t i"),
            tmp_path,
            "new",
        )


def test_operators_without_a_template_stay_in_pytorch(tmp_path: Path) -> None:
    forward = "a, b = torch.linalg.qr(x * 2)\nreturn (a + 1).exp(), torch.linalg.det(x.view(1, 5, 5)[0] + 1) * 2"
    found = check(problem_of(forward, "torch.randn(5, 5)"), tmp_path, ulps=2000)
    assert any("linalg" in name for name in found.in_pytorch)


def test_weights_and_results_that_are_not_contiguous_are_read_right(tmp_path: Path) -> None:
    setup = "self.w = torch.nn.Parameter(torch.randn(4, 6).t())"
    forward = """
        q = torch.linalg.inv(x).t()
        return x * 2 + self.w[:4, :4], q[1:].reshape(-1), self.w.exp(), torch.linalg.matrix_norm(self.w[2:])
    """
    check(problem_of(forward, "torch.eye(4) + 0.1 * torch.randn(4, 4)", setup), tmp_path, ulps=200)


def test_an_argument_that_is_no_tensor_must_stay_as_it_was(tmp_path: Path) -> None:
    problem = problem_of("return x * k + (1 if flag else 2)", "torch.randn(3, 4), 3", arguments="x, k, flag=True")
    check(problem, tmp_path)
    new = load(written(problem).source, tmp_path, "new").ModelNew()
    with pytest.raises(ValueError, match="k: this kernel is written for 3, got 5"):
        new(torch.randn(3, 4), 5)
    with pytest.raises(ValueError, match="flag"):
        new(torch.randn(3, 4), 3, flag=False)


def test_sizes_known_only_at_run_time_pass_through(tmp_path: Path) -> None:
    forward = "y = torch.unique(x)\nreturn (y * 2 + 1).float().exp(), y.clamp(max=3)"
    check(problem_of(forward, "torch.randint(0, 6, (40,))"), tmp_path)


def test_a_model_without_forward_is_refused() -> None:
    with pytest.raises(ProblemError, match="forward"):
        problem_source.rewrite("class Model:\n    x = 1\n", "    def forward(self): ...")
    with pytest.raises(ProblemError, match="class Model"):
        problem_source.rewrite("class Modell:\n    x = 1\n", "    def forward(self): ...")


def test_dead_operations_are_dropped_and_calls_can_be_kept_in_pytorch() -> None:
    captured = capture(problem_of("y = x.exp()\nz = x.log()\nreturn y.sum(-1)", "torch.randn(3, 4)"), timeout_s=60)
    graph = lower(captured)
    assert not any("log" in op.origin for op in graph.ops)
    kept = lower(captured, keep={"exp"})
    assert [op.kind for op in kept.ops if op.name == "exp"] == ["opaque"]
