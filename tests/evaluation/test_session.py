import random

from kernelevolve.evaluation.session import MAX_SAMPLES, plan
from kernelevolve.evaluation.statistics import drift, enough, ratio
from kernelevolve.records import Timing
from tests.evaluation.test_statistics import timing

FLUSH = {"flush_bytes": 2**20, "flush_ns": 5e6}


def test_time_is_spread_over_rounds_and_sides():
    chosen = plan({"candidate": 1e6, "eager": 2e6}, time_s=1.0, rounds=12, **FLUSH)
    assert chosen.rounds == 12
    assert chosen.repeats == 1
    spent = sum(12 * (3e6 + n * (5e6 + ns)) for n, ns in zip(chosen.samples.values(), (1e6, 2e6), strict=True))
    assert 0.7e9 < spent <= 1e9


def test_short_calls_are_repeated_and_long_ones_have_six_rounds_whatever_the_budget():
    short = plan({"candidate": 1000.0, "eager": 5000.0}, time_s=1.0, rounds=12, **FLUSH)
    assert short.repeats == 100
    long = plan({"candidate": 2e8, "eager": 2e8}, time_s=1.0, rounds=12, **FLUSH)
    assert (long.rounds, long.repeats, set(long.samples.values())) == (6, 1, {1})


def test_a_block_asks_for_no_more_calls_than_there_are_slots():
    few = plan({"candidate": 60_000.0}, time_s=10.0, rounds=12, flush_bytes=0, flush_ns=0.0, slots=7)
    assert few.samples["candidate"] == 7
    many = plan({"candidate": 60_000.0}, time_s=10.0, rounds=12, flush_bytes=0, flush_ns=0.0)
    assert many.samples["candidate"] == MAX_SAMPLES


def decide(ratios, **choices):
    candidate = timing("candidate", [[1.0]] * len(ratios))
    return enough(candidate, timing("eager", [[r] for r in ratios]), **{"tightness": 0.01, "floor": 0.02, **choices})


def test_a_narrow_interval_is_enough_on_whichever_side_of_one():
    for middle in (0.5, 1.0, 2.0):
        assert decide([middle * (1 + 0.001 * (k % 3)) for k in range(12)]) == "tight"


def test_a_clear_outcome_is_enough_for_a_win_as_for_a_loss():
    clear = [2.0 * (1 + 0.02 * (k % 5)) for k in range(12)]
    assert decide(clear) == "settled"
    assert decide([1 / r for r in clear]) == "settled"
    near = [1.05 * (1 + 0.02 * (k % 5)) for k in range(12)]
    assert decide(near) == decide([1 / r for r in near]) == ""


def test_a_wide_interval_or_few_rounds_are_never_enough():
    assert decide([2.0 * (1 + 0.2 * (k % 5)) for k in range(12)]) == ""
    assert decide([2.0] * 5) == ""


def test_stopping_when_it_is_enough_invents_no_wins():
    """A/A sessions with noise of 3 %, looked at as a session does: wins and losses stay as rare as without."""
    rng = random.Random(5)
    verdicts = []
    covered = 0
    for _ in range(400):
        ratios = []
        while len(ratios) < 60:
            ratios.append(rng.lognormvariate(0, 0.03))
            if len(ratios) >= 12 and len(ratios) % 3 == 0 and decide(ratios, floor=0.005):
                break
        candidate = timing("candidate", [[1.0]] * len(ratios))
        found = ratio(timing("eager", [[r] for r in ratios]), candidate)
        covered += found.low <= 1 <= found.high
        verdicts.append(found.verdict(0.005))
    assert covered / 400 > 0.92
    assert verdicts.count("win") < 20
    assert verdicts.count("loss") < 20


def test_a_timing_of_one_round_has_no_drift():
    assert drift(Timing("eager", (1.0, 2.0), (0, 0))) == 0.0
    assert drift(timing("eager", [[1.0]] * 4 + [[1.5]] * 4 + [[2.0]] * 4)) == 1.0
