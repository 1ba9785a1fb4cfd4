import os
import time

from kernelevolve.evaluation.conditions import flags
from kernelevolve.platforms.cpu import Cpu
from kernelevolve.records import Timing

CALM = {"busy_s": 10.0, "idle_s": 10.0, "steal_s": 0.0, "own_s": 5.0, "clock_mhz": 3000.0, "throttled_count": 7}


def after(**changes):
    return {**CALM, "busy_s": 12.0, "idle_s": 10.0, "own_s": 7.0, **changes}


def timing(name, per_round, **more):
    return Timing(name, tuple(per_round), tuple(range(len(per_round))), **more)


def tags(before, now, timings=(), floor=0.01):
    return [flag.partition(":")[0] for flag in flags(before, now, timings, floor)]


def test_a_calm_machine_has_no_flags():
    assert tags(CALM, after(), [timing("candidate", [1.0] * 12), timing("eager", [2.0] * 12)]) == []


def test_nothing_readable_means_no_flags():
    assert flags({}, {}, [], 0.0) == ()


def test_steal_and_other_programs_are_contention():
    assert tags(CALM, after(steal_s=0.2)) == ["contention"]
    assert tags(CALM, after(own_s=5.5)) == ["contention"]
    assert tags(CALM, after(own_s=6.9)) == []


def test_a_falling_clock_and_a_counted_slowdown_are_throttling():
    assert tags(CALM, after(clock_mhz=2500.0)) == ["throttling"]
    assert tags(CALM, after(clock_mhz=3400.0)) == []
    assert tags(CALM, after(throttled_count=8)) == ["throttling"]
    assert tags({}, {"throttled": ["power cap"]}) == ["throttling"]


def test_a_baseline_that_drifts_beyond_the_floor_is_flagged_with_its_direction():
    rising = [1.0 + 0.02 * k for k in range(12)]
    (flag,) = flags(CALM, after(), [timing("candidate", rising), timing("eager", rising)], 0.01)
    assert flag.startswith("drift: eager was")
    assert "slower" in flag
    assert "faster" in flags(CALM, after(), [timing("eager", rising[::-1])], 0.01)[0]
    assert tags(CALM, after(), [timing("eager", rising)], floor=0.5) == []


def test_calls_that_are_all_call_are_launch_bound():
    assert tags(CALM, after(), [timing("candidate", [0.002], inner_repeats=50)]) == ["launch-bound"]
    assert tags(CALM, after(), [timing("candidate", [1.0], issue_ms=0.95)]) == ["launch-bound"]
    assert tags(CALM, after(), [timing("candidate", [1.0], issue_ms=0.2)]) == []


def test_the_processor_says_how_busy_it_is_and_how_much_of_that_is_ours():
    before = Cpu().conditions([os.getpid()])
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    now = Cpu().conditions([os.getpid(), 2**22 + 1])
    assert now["own_s"] - before["own_s"] >= 0.1
    assert now["busy_s"] - before["busy_s"] >= 0.1
    assert now["load"] >= 0
