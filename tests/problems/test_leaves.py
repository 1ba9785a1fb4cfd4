"""Counting and comparing leaves: views, expanded tensors and exact dtypes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelevolve.problems import leaves


@st.composite
def views(draw: st.DrawFn, storage: torch.Tensor) -> torch.Tensor:
    """Any strided window of the storage."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    stride = [draw(st.integers(0, 5)) for _ in shape]
    reach = sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    return storage.as_strided(shape, stride, draw(st.integers(0, storage.numel() - 1 - reach)))


STORAGE = torch.arange(64, dtype=torch.int16)


@given(views(STORAGE))
def test_positions_are_where_the_elements_lie(view: torch.Tensor) -> None:
    assert torch.equal(STORAGE[leaves.positions(view)], view)


@given(st.lists(views(STORAGE), max_size=3))
def test_every_byte_counts_once(shown: list[torch.Tensor]) -> None:
    elements = {value for view in shown for value in view.flatten().tolist()}
    assert leaves.distinct_bytes(shown) == 2 * len(elements)


def test_flattening_goes_depth_first_and_names_the_places() -> None:
    a, b, c = torch.zeros(1), torch.ones(2), torch.zeros(3)
    assert [(where, t.numel()) for where, t in leaves.flatten((a, {"k": [b], "l": c}))] == [
        ("output[0]", 1), ("output[1]['k'][0]", 2), ("output[1]['l']", 3),
    ]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_exact_dtypes_compare_exactly(dtype: torch.dtype) -> None:
    a = torch.tensor([0, 1, 1]).to(dtype)
    b = torch.tensor([0, 1, 0]).to(dtype)
    assert leaves.close([a], [a.clone()])
    assert not leaves.close([a], [b])
    assert leaves.relative_error(b, a) == 1


def test_another_shape_or_dtype_is_never_close() -> None:
    x = torch.zeros(2, 3)
    assert not leaves.close([x], [x.view(3, 2)])
    assert not leaves.close([x], [x.double()])
    assert not leaves.close([x], [x, x])


def test_nan_equals_nan_when_bits_are_compared() -> None:
    x = torch.tensor([float("nan"), 1.0])
    assert leaves.same([x], [x.clone()])
    assert not leaves.same([x], [torch.tensor([float("nan"), 2.0])])


@given(st.floats(1e-3, 1e3), st.floats(1e-9, 1e-1))
def test_the_relative_error_is_that_of_a_scaled_answer(scale: float, delta: float) -> None:
    truth = torch.linspace(-1, 2, 17, dtype=torch.float64) * scale
    assert leaves.relative_error(truth * (1 + delta), truth) == pytest.approx(delta, rel=1e-3)


@given(views(STORAGE), st.integers(1, 100))
def test_a_changed_element_changes_the_fingerprint(view: torch.Tensor, delta: int) -> None:
    changed = view.clone(memory_format=torch.contiguous_format)
    assert leaves.fingerprint(changed) == leaves.fingerprint(view)
    changed.view(-1)[-1] += delta
    assert leaves.fingerprint(changed) != leaves.fingerprint(view)


@pytest.mark.parametrize("t", [torch.zeros(()), torch.zeros(0, 3), torch.ones(2).bool(), torch.ones(3).bfloat16(),
                               torch.ones(2, dtype=torch.complex64).conj()])
def test_every_kind_of_tensor_has_a_fingerprint(t: torch.Tensor) -> None:
    assert leaves.fingerprint(t) == leaves.fingerprint(t.clone())
