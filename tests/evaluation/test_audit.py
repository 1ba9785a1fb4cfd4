"""What readings say against a session's claims, in numbers; times in nanoseconds."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelevolve.evaluation.audit import Evidence, Reading, calls_for, lagging, suspicion
from kernelevolve.records import Status

MS = 1_000_000


def reading(span_ns, *, calls=1, overhead_ns=200_000, claimed_ns=None):
    claimed_ns = span_ns if claimed_ns is None else claimed_ns
    return Reading(calls, span_ns, span_ns, claimed_ns, claimed_ns + overhead_ns)


def evidence(session_ns, audits, longs=()):
    return Evidence(session_ns, [reading(ns) for ns in audits], [reading(ns * 10, calls=10) for ns in longs])


EAGER = evidence(5 * MS, [5 * MS, 6 * MS], [5 * MS])


@given(st.integers(1_000, 10**9), st.floats(0.7, 20), st.floats(0.7, 20), st.integers(0, 400_000))
def test_whoever_is_once_as_quick_as_in_its_session_is_believed(session_ns, slow, fast, overhead_ns):
    audits = [reading(int(session_ns * slow), overhead_ns=overhead_ns), reading(session_ns, overhead_ns=overhead_ns)]
    longs = [reading(int(9 * session_ns * fast), calls=9, overhead_ns=overhead_ns),
             reading(9 * session_ns, calls=9, overhead_ns=overhead_ns)]
    assert suspicion(Evidence(session_ns, audits, longs)) is None


def test_whoever_is_faster_when_many_calls_are_timed_is_suspect():
    mine = evidence(1 * MS, [4 * MS, 5 * MS])
    for eager in (None, EAGER):
        found = suspicion(mine, eager)
        assert found.status is Status.SUSPECT
        assert "1 ms per call in the session, at least 4 ms" in found.detail


def test_a_third_slower_is_within_what_noise_can_do():
    assert suspicion(evidence(1 * MS, [int(1.4 * MS)])) is None
    assert suspicion(evidence(1 * MS, [int(1.6 * MS)])) is not None


def test_what_happens_to_the_baseline_too_is_allowed():
    mine = evidence(1 * MS, [int(2.4 * MS)])
    assert suspicion(mine) is not None
    assert suspicion(mine, evidence(2 * MS, [int(3.6 * MS)])) is None
    assert suspicion(mine, evidence(4 * MS, [int(4.8 * MS)])) is None  # 0.8 ms later, as it may be twice
    assert suspicion(mine, evidence(4 * MS, [int(4.1 * MS)])) is not None


def test_a_machine_too_busy_to_tell_is_nobodys_fault():
    mine = evidence(1 * MS, [9 * MS])
    found = suspicion(mine, evidence(1 * MS, [8 * MS]))
    assert found.status is Status.HARNESS_ERROR
    assert "too busy" in found.detail


def test_a_clock_that_runs_slow_is_dishonest_wherever_it_does():
    lied = [reading(1 * MS, overhead_ns=9 * MS)] * 3
    honest = [reading(10 * MS)] * 3
    assert suspicion(Evidence(1 * MS, lied, [])).status is Status.DISHONEST
    assert suspicion(Evidence(1 * MS, [reading(1 * MS)], [reading(10 * MS, calls=10, overhead_ns=90 * MS)])).status \
        is Status.DISHONEST
    found = suspicion(Evidence(1 * MS, [reading(1 * MS)], [dataclasses.replace(r, calls=2) for r in honest]), EAGER)
    assert found.status is Status.DISHONEST
    assert "1 ms per call where at least" in found.detail


def test_one_block_that_was_interrupted_accuses_nobody():
    blocks = [reading(1 * MS, overhead_ns=50 * MS), reading(1 * MS)]
    assert suspicion(Evidence(1 * MS, blocks, [])) is None


def test_copying_a_large_output_is_not_hidden_work():
    mine = Evidence(1 * MS, [reading(1 * MS, overhead_ns=20 * MS)], [])
    assert suspicion(mine) is not None
    assert suspicion(mine, copied_bytes=20 * 2**20) is None


@pytest.mark.parametrize(("claim", "calls"), [(10**9, 1), (10_000, 100), (1, 200), (0, 200)])
def test_a_claim_of_nothing_does_not_ask_for_endless_calls(claim, calls):
    assert calls_for(MS, claim, 100_000) == calls


@dataclasses.dataclass
class Sampled:
    ns: list[int]
    host_ns: list[int]

    @property
    def link(self):
        return self

    name = "eager"


def test_work_after_the_devices_clock_stopped_is_dishonest_unless_the_baseline_does_it_too():
    late = Sampled([1 * MS] * 5, [3 * MS] * 5)
    prompt = Sampled([1 * MS] * 5, [1 * MS + 30_000] * 5)
    assert lagging(late, prompt).status is Status.DISHONEST
    assert lagging(late, late) is None
    assert lagging(prompt, prompt) is None
