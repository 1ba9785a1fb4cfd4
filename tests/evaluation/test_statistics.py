import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelevolve.evaluation.statistics import median_interval, noise_floor, ratio
from kernelevolve.records import Interval, Proposal, Result, Status, Timing
from kernelevolve.views.verdict import verdict

values = st.lists(st.floats(0.01, 100, allow_nan=False), min_size=1, max_size=60)


def timing(name, per_round):
    rounds = tuple(r for r, samples in enumerate(per_round) for _ in samples)
    return Timing(name, tuple(s for samples in per_round for s in samples), rounds)


@given(values)
def test_the_interval_holds_the_median_and_lies_within_the_samples(samples):
    interval = median_interval(samples)
    assert min(samples) <= interval.low <= interval.value <= interval.high <= max(samples)
    assert interval.n == len(samples)


def test_the_interval_of_twelve_is_between_the_third_and_the_tenth():
    interval = median_interval(range(1, 13))
    assert (interval.low, interval.value, interval.high) == (3, 6.5, 10)


def test_the_interval_covers_the_true_median_95_times_in_100():
    rng = random.Random(7)
    hits = 0
    for _ in range(2000):
        interval = median_interval([rng.lognormvariate(0, 1) for _ in range(12)])
        hits += interval.low <= 1.0 <= interval.high
    assert 0.94 <= hits / 2000 <= 0.985


def test_no_samples_give_no_number():
    assert median_interval([]).n == 0
    assert median_interval([]).value != median_interval([]).value


def test_a_ratio_pairs_rounds_so_that_drift_cancels():
    drift = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    candidate = timing("candidate", [[d] * 3 for d in drift])
    baseline = timing("eager", [[3 * d] * 3 for d in drift])
    assert ratio(baseline, candidate) == ratio(baseline, candidate)
    assert (ratio(baseline, candidate).low, ratio(baseline, candidate).high) == (3.0, 3.0)


def test_rounds_that_only_one_side_has_are_left_out():
    assert ratio(timing("eager", [[2.0], [2.0]]), timing("candidate", [[1.0], [1.0], [9.0]])).n == 2


def test_equal_sides_have_no_noise_floor_and_unequal_ones_have():
    a = timing("a", [[1.0]] * 12)
    assert noise_floor(a, a) == 0.0
    assert noise_floor(timing("b", [[1.02]] * 12), a) > 0.019


@pytest.mark.parametrize(("value", "low", "high", "word"), [
    (1.5, 1.4, 1.6, "win"), (1.5, 0.9, 1.6, "tie"), (1.01, 1.005, 1.02, "tie"), (1.0, 0.99, 1.01, "tie"),
    (0.5, 0.4, 0.6, "loss"), (0.5, 0.4, 1.1, "tie"), (0.99, 0.985, 0.995, "tie"), (0.0, 0.0, 0.0, "not timed"),
    (float("nan"), float("nan"), float("nan"), "not timed"),
])
def test_one_rule_says_win_tie_or_loss(value, low, high, word):
    interval = Interval(value, low, high, 12)
    assert interval.verdict(0.02) == word
    assert verdict(interval, 0.02) == word
    result = Result(Proposal("", "", "hand"), Status.CORRECT, ratios={"eager": interval}, noise_floor=0.02)
    assert result.verdict == word
    assert verdict(None, 0.02) == dataclasses.replace(result, ratios={}).verdict == "not timed"
