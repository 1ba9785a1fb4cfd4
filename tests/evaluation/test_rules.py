import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelevolve import errors
from kernelevolve.evaluation import rules


def judge(name, output, truth, reference, terms=1, scale=1.0):
    return rules.get(name).judge(output, truth=truth, reference=reference, leaf=0, trial="t", terms=terms, scale=scale)


def three(f, *inputs):
    """The float64 truth and the float32 reference of f."""
    return f(*[x.double() for x in inputs]), f(*inputs)


def running_sum(x):
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for j in range(x.shape[1]):
        total = total + x[:, j]
    return total


def split3(a, b):
    """A product of two bfloat16 terms each, without the smallest of the four: bf16x3."""
    hi_a, hi_b = a.bfloat16().float(), b.bfloat16().float()
    lo_a, lo_b = (a - hi_a).bfloat16().float(), (b - hi_b).bfloat16().float()
    return hi_a @ hi_b + hi_a @ lo_b + lo_a @ hi_b


@pytest.mark.parametrize("columns", [64, 256, 1024])
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_a_plain_running_sum_is_honest(columns, shift):
    x = torch.rand(32, columns) + shift
    truth, reference = three(lambda v: v.sum(-1), x)
    assert judge("strict", running_sum(x), truth, reference, terms=columns).passed


def test_a_fast_exponential_of_four_ulp_is_honest():
    x = torch.randn(64, 64)
    truth, reference = three(torch.exp, x)
    noisy = reference * (1 + (torch.rand(64, 64) * 8 - 4) * 2**-23)
    assert judge("strict", noisy, truth, reference).passed


@pytest.mark.parametrize("make", [torch.rand, torch.randn])
def test_low_precision_products_pass_the_old_rule_and_fail_strict(make):
    a, b = make(64, 512), make(512, 64)
    truth, reference = three(torch.matmul, a, b)
    half = (a.bfloat16() @ b.bfloat16()).float()
    assert not judge("strict", half, truth, reference, terms=512).passed
    tf32 = ((a.view(torch.int32) & -8192).view(torch.float32)) @ ((b.view(torch.int32) & -8192).view(torch.float32))
    assert not judge("strict", tf32, truth, reference, terms=512).passed
    small = 0.01 * half, 0.01 * truth, 0.01 * reference
    assert judge("kernelbench-v0.1", *small).passed


def test_a_split_product_is_refused_on_zero_mean_inputs_only():
    torch.manual_seed(0)
    a, b = torch.rand(64, 1024), torch.rand(1024, 64)
    truth, reference = three(torch.matmul, a, b)
    assert judge("strict", split3(a, b), truth, reference, terms=1024).passed
    a, b = a - a.mean(), b - b.mean()
    truth, reference = three(torch.matmul, a, b)
    assert not judge("strict", split3(a, b), truth, reference, terms=1024).passed


def test_the_three_rule_sets_disagree_where_they_should():
    reference = torch.ones(4)
    for off, expected in ((5e-3, (True, False, False)), (5e-5, (True, True, False)), (0.0, (True, True, True))):
        found = tuple(judge(n, reference + off, reference.double(), reference).passed
                      for n in ("kernelbench-v0.1", "kernelbench-main", "strict"))
        assert found == expected


def test_half_precision_has_its_own_tolerance_in_kernelbench_main():
    reference = torch.ones(4, dtype=torch.float16)
    assert judge("kernelbench-main", reference + 5e-3, reference.double(), reference).passed
    assert not judge("kernelbench-main", reference + 5e-2, reference.double(), reference).passed


def test_one_wild_element_cannot_hide_in_the_norm():
    truth = torch.randn(2**20).double()
    reference = truth.float()
    output = reference.clone()
    output[123] += 1e-3
    error = judge("strict", output, truth, reference)
    assert error.error < error.limit
    assert not error.passed


@pytest.mark.parametrize("name", sorted(rules.RULES))
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_never_passes_where_the_reference_is(name, bad):
    reference = torch.randn(8)
    output = reference.clone()
    output[3] = bad
    assert not judge(name, output, reference.double(), reference).passed


def test_strict_wants_infinities_and_nans_where_the_reference_has_them():
    reference = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    assert judge("strict", reference.clone(), reference.double(), reference).passed
    for other in ([1.0, 0.0, float("inf"), -float("inf")], [1.0, float("nan"), -float("inf"), -float("inf")]):
        assert not judge("strict", torch.tensor(other), reference.double(), reference).passed


def test_zero_truth_asks_for_exact_zeros_unless_the_reference_misses_them_too():
    zeros = torch.zeros(4)
    assert judge("strict", zeros, zeros.double(), zeros).passed
    assert not judge("strict", zeros + 1e-6, zeros.double(), zeros).passed
    assert judge("strict", zeros + 1e-6, zeros.double(), zeros + 1e-6).passed


def test_integers_are_exact_but_either_side_of_a_tie_is_right():
    reference, truth = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4])
    for name in rules.RULES:
        assert judge(name, torch.tensor([1, 2, 3]), truth, reference).passed
        assert judge(name, torch.tensor([1, 2, 4]), truth, reference).passed
        assert not judge(name, torch.tensor([1, 1, 3]), truth, reference).passed


def test_booleans_are_exact():
    reference = torch.tensor([True, False])
    assert not judge("strict", ~reference, reference, reference).passed


@pytest.mark.parametrize("shape", [(0,), (), (3, 0)])
def test_empty_and_scalar_leaves_are_judged(shape):
    reference = torch.ones(shape)
    assert judge("strict", reference.clone(), reference.double(), reference).passed


def test_tolerance_scales_the_limits():
    reference = torch.ones(4)
    output = reference + 4e-6
    assert not judge("strict", output, reference.double(), reference).passed
    assert judge("strict", output, reference.double(), reference, scale=10.0).passed


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
       st.floats(-30, 30), st.integers(1, 200))
def test_the_reference_always_passes_strict_against_itself(seed, dtype, log_scale, n):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(n, generator=generator, dtype=torch.float64) * 2.0 ** (log_scale / 3)
    reference = truth.to(dtype)
    assert judge("strict", reference.clone(), truth, reference).passed


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.floats(1e-4, 1.0), st.integers(1, 200))
def test_strict_refuses_any_relative_error_of_a_ten_thousandth(seed, size, n):
    generator = torch.Generator().manual_seed(seed)
    reference = torch.randn(n, generator=generator)
    assert not judge("strict", reference * (1 + size), reference.double(), reference).passed


def test_an_unknown_rule_set_names_the_known_ones():
    with pytest.raises(errors.UnknownNameError, match="strict"):
        rules.get("lenient")
