"""Problems that a stub would pass are found and marked with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelevolve.problems as problems
from tests.problems.test_load import write, write_forward


@pytest.mark.parametrize(("body", "inputs", "reason"), [
    ("return x * 1e-6", "torch.randn(4, 6)", "an all-zero output passes"),
    ("return x - x.mean(1, keepdim=True)", "torch.randn(64, 1)", "an all-zero output passes"),
    ("return torch.softmax(x, 1)", "torch.randn(64, 1)", "other random inputs give the same output"),
    ("return x * 0 + torch.arange(6.)", "torch.randn(4, 6)", "other random inputs give the same output"),
    ("return x.clone()", "torch.randn(4, 6)", "a copy of an input passes"),
    ("return x.flatten() + 1e-7", "torch.randn(4, 6)", "a copy of an input passes"),
    ("return (x > -100).float() * 0.5", "torch.randn(4, 6)", "other random inputs give the same output"),
])
def test_a_stub_that_passes_makes_a_problem_weak(tmp_path: Path, body: str, inputs: str, reason: str) -> None:
    assert reason in problems.load(write_forward(tmp_path, body, inputs)).weak


def test_a_constant_that_passes_makes_a_problem_weak(tmp_path: Path) -> None:
    path = write_forward(tmp_path, "return torch.full(x.shape[:x.shape[0] - 3], 2.0) + 5e-5 * x[:, 0].mean()")
    assert problems.load(path).weak


def test_an_input_without_effect_makes_a_problem_weak(tmp_path: Path) -> None:
    path = write(tmp_path, """\
        import torch

        class Model(torch.nn.Module):
            def forward(self, x, unused):
                return x * 2

        def get_inputs():
            return [torch.randn(8), torch.randn(8)]

        def get_init_inputs():
            return []
    """)
    assert problems.load(path).weak == "input 1 has no effect on the output at 0.0001"


def test_weights_without_effect_make_a_problem_weak(tmp_path: Path) -> None:
    path = write(tmp_path, """\
        import torch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(8, 8)

            def forward(self, x):
                return x * 2 + 0 * self.linear(x)

        def get_inputs():
            return [torch.randn(3, 8)]

        def get_init_inputs():
            return []
    """)
    assert problems.load(path).weak == "the weights have no effect on the output at 0.0001"


def test_a_sound_problem_is_not_weak(tmp_path: Path) -> None:
    assert problems.load(write_forward(tmp_path, "return x.relu()")).weak == ""
