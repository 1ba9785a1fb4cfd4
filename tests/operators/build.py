"""Turn a few lines of forward into a problem, a graph, a module, and numbers. Shared by the tests of this folder."""

from __future__ import annotations

import importlib.util
import itertools
import os
import random
import textwrap
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from kernelevolve.operators.template import genome as genomes
from kernelevolve.operators.template import module
from kernelevolve.operators.template.capture import capture
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.operator import covered
from kernelevolve.records import Problem

FACTS = {"vector_lanes_fp32": 16, "cores": 2, "l1_bytes": 32768, "l2_bytes": 2**20}
_numbers = itertools.count()


def problem_of(forward: str, inputs: str, setup: str = "", arguments: str = "x") -> Problem:
    """A problem with `forward` as the body of its method and `inputs` as what get_inputs returns."""
    source = "\n".join([
        "import torch", "import torch.nn.functional as F", "", "class Model(torch.nn.Module):",
        "    def __init__(self):", "        super().__init__()", textwrap.indent(textwrap.dedent(setup), " " * 8),
        f"    def forward(self, {arguments}):", textwrap.indent(textwrap.dedent(forward).strip(), " " * 8), "",
        "def get_inputs():", f"    return [{inputs}]", "", "def get_init_inputs():", "    return []", "",
    ])  # fmt: skip
    return Problem(id=f"test/case_{next(_numbers)}", source=source, code_hash="")


def graph_of(problem: Problem) -> Graph:
    """Its graph."""
    return covered(capture(problem, timeout_s=60), problem.id)


def load(source: str, folder: Path, name: str) -> ModuleType:
    """Import source text."""
    path = folder / f"{name}_{next(_numbers)}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    with mock.patch.dict(os.environ, {"KERNELEVOLVE_BUILD_DIR": str(folder / f"build_{path.stem}")}):
        spec.loader.exec_module(found)
    return found


def leaves(value: Any) -> list[torch.Tensor]:
    """Tensors of a nested result."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [leaf for item in items for leaf in leaves(item)]


def outputs_of(
    problem: Problem, source: str, folder: Path, inputs: list[Any] | None = None
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[Any]]:
    """Leaves of the reference and of the candidate on the same weights and inputs, and the inputs."""
    reference, candidate = load(problem.source, folder, "reference"), load(source, folder, "candidate")
    torch.manual_seed(3)
    model = reference.Model(*reference.get_init_inputs())
    new = candidate.ModelNew(*reference.get_init_inputs())
    new.load_state_dict(model.state_dict())
    torch.manual_seed(4)
    inputs = reference.get_inputs() if inputs is None else inputs
    with torch.no_grad():
        return leaves(model(*inputs)), leaves(new(*inputs)), inputs


def check(
    problem: Problem,
    folder: Path,
    *,
    genome: Mapping[str, Any] | None = None,
    inputs: list[Any] | None = None,
    ulps: float = 64.0,
) -> module.Module:
    """Write, build, run and compare with PyTorch; exact for integers and bools, NaN where PyTorch has NaN."""
    graph = graph_of(problem)
    if genome is None:
        genome = genomes.drafts(graph, FACTS, random.Random(0))[0]
    written = module.write(problem.source, problem.title, graph, genome)
    expected, got, _ = outputs_of(problem, written.source, folder, inputs)
    assert len(expected) == len(got)
    for k, (want, have) in enumerate(zip(expected, got, strict=True)):
        compare(want, have, f"output {k}", ulps)
    return written


def compare(want: torch.Tensor, have: torch.Tensor, what: str, ulps: float = 64.0) -> None:
    """Same shape, dtype and values; floats within `ulps` of the largest magnitude around."""
    assert want.shape == have.shape, what
    assert want.dtype == have.dtype, what
    if not want.dtype.is_floating_point:
        assert torch.equal(want, have), what
        return
    torch.testing.assert_close(
        have,
        want,
        rtol=ulps * torch.finfo(want.dtype).eps,
        atol=ulps * torch.finfo(want.dtype).eps,
        equal_nan=True,
        msg=lambda m: f"{what}: {m}",
    )
