"""The bytes that any implementation must move: never more than the truth, and the truth where it is simple."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelevolve.problems as problems
from tests.problems.test_load import write, write_forward


def count(folder: Path, body: str, inputs: str) -> int:
    return problems.load(write_forward(folder, body, inputs)).bytes_min


def test_a_dense_input_counts_once_however_often_it_is_read(tmp_path: Path) -> None:
    assert count(tmp_path, "return (x - x.mean()) / x.std()", "torch.randn(40, 6)") == 2 * 4 * 240


def test_a_part_that_is_sliced_away_does_not_count(tmp_path: Path) -> None:
    assert count(tmp_path, "return x[:, :2] * 3", "torch.randn(40, 6)") == 2 * 4 * 80


def test_a_part_that_is_masked_away_does_not_count(tmp_path: Path) -> None:
    body = "return torch.where(torch.arange(1000) < 300, x, 0.0).sum(1) + 1"
    found = count(tmp_path, body, "torch.randn(4, 1000)")
    assert 0.5 * 4 * 1200 < found <= 4 * 1200 + 16


def test_values_below_a_threshold_count_because_they_must_be_looked_at(tmp_path: Path) -> None:
    assert count(tmp_path, "return x.relu()", "torch.randn(50, 50) - 1.5") == 2 * 4 * 2500


def test_pooling_counts_every_element_under_a_window(tmp_path: Path) -> None:
    body = "return torch.nn.functional.max_pool2d(x, 2)"
    assert count(tmp_path, body, "torch.randn(1, 2, 32, 32)") == 4 * (2048 + 512)


def test_an_expanded_input_counts_by_its_memory(tmp_path: Path) -> None:
    found = count(tmp_path, "return x * 2", "torch.randn(64, 1).expand(64, 100)")
    assert found <= 4 * (64 + 6400)


def test_a_table_counts_by_the_rows_that_are_used_once_each(tmp_path: Path) -> None:
    path = write(tmp_path, """\
        import torch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.table = torch.nn.Embedding(100000, 16)

            def forward(self, ids):
                return self.table(ids) * 2

        def get_inputs():
            return [torch.randperm(64).repeat(4)]

        def get_init_inputs():
            return []
    """)
    ids, rows, out = 256 * 8, 64 * 16 * 4, 256 * 16 * 4
    assert problems.load(path).bytes_min == ids + rows + out


@pytest.mark.parametrize("body", ["return x.index_select(0, torch.tensor([1, 1, 3])) + 1",
                                  "return x[torch.tensor([3, 1])] + 1",
                                  "return x.gather(0, torch.tensor([[1] * 6, [3] * 6])) + 1"])
def test_selecting_operators_count_what_they_select(tmp_path: Path, body: str) -> None:
    rows_out = 3 if "index_select" in body else 2
    assert count(tmp_path, body, "torch.randn(1000, 6)") == 4 * 6 * (2 + rows_out)


def test_outputs_that_share_memory_count_once(tmp_path: Path) -> None:
    assert count(tmp_path, "y = x + 1\nreturn y, y.t(), y[0]", "torch.randn(40, 6)") == 2 * 4 * 240
