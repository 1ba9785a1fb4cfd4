"""Candidates that lie about their time, and honest ones that look as if they did. Real processes, sources not read."""

import dataclasses
import multiprocessing
import os
import time

import pytest

from kernelevolve.evaluation import Evaluator
from kernelevolve.records import Status
from tests.evaluation.problems import QUICK, problem, proposal

UNREAD = dataclasses.replace(QUICK, read_source=False, time_s=1.0, tightness=0.1, flush_bytes=2**20)
NOT_BELIEVED = {Status.SUSPECT, Status.DISHONEST}

WORK = """
class Model(nn.Module):
    def forward(self, x):
        return torch.linalg.matrix_power(x, 3).softmax(dim=-1)

def get_inputs():
    return [torch.randn(160, 160)]

def get_init_inputs():
    return []
"""
WORK_NEW = WORK[:WORK.index("def get_inputs")].replace("Model(", "ModelNew(")
CHEAT = """
import hashlib, sys, threading, time

def work(x):
    return torch.linalg.matrix_power(x, 3).softmax(dim=-1)

def frame():
    f = sys._getframe()
    while f is not None and f.f_code.co_name != "take":
        f = f.f_back
    return f

class ModelNew(nn.Module):
    calls, answers, last = 0, {}, None

    def forward(self, x):
        ModelNew.calls += 1
        BODY
"""


def cheat(body):
    return CHEAT.replace("BODY", body.strip().replace("\n", "\n        "))


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    with Evaluator(problem(WORK), settings=UNREAD, scratch=tmp_path_factory.mktemp("scratch")) as e:
        e.start()
        yield e


def judged(evaluator, source):
    result = evaluator.evaluate(proposal(source))
    return result.status, result.detail, result


def samples_per_block(result):
    """A busy machine leaves time for one or two; then the last one is the median, and these cheats gain nothing."""
    mine = result.timings[0]
    return len(mine.rounds) / len(set(mine.rounds))


@pytest.mark.parametrize("key", ["x.sum().item()", "hashlib.sha1(x.numpy().tobytes()).digest()"])
def test_a_cache_keyed_on_content_gains_nothing(work, key):
    status, detail, result = judged(work, cheat(f"""
key = {key}
if key not in self.answers:
    self.answers[key] = work(x)
return self.answers[key].clone()
"""))
    assert status is Status.CORRECT, detail
    assert result.ratios["eager"].low < 1.3


def test_a_cache_keyed_on_a_few_values_gains_nothing(work):
    status, detail, result = judged(work, cheat("""
key = tuple(x[::16, 0].tolist())
if key not in self.answers:
    self.answers[key] = work(x)
return self.answers[key].clone()
"""))
    assert status is Status.CORRECT, detail
    assert result.ratios["eager"].low < 1.3


def test_skipping_the_work_after_so_many_calls_is_seen_in_an_output_of_the_session(work):
    status, detail, _ = judged(work, cheat("""
if self.calls > 40:
    return torch.empty_like(x)
return work(x)
"""))
    assert status is Status.WRONG_VALUE
    assert "in the session" in detail or "audit" in detail


def test_an_old_output_handed_out_again_while_timed_is_seen(work):
    status, detail, _ = judged(work, cheat("""
if frame() is None or self.last is None:
    self.last = work(x)
return self.last
"""))
    assert status in {Status.WRONG_VALUE, Status.DISHONEST}, detail


def test_working_only_in_the_last_call_of_a_block_is_slower_when_each_call_is_kept(work):
    status, detail, result = judged(work, cheat("""
f = frame()
if f is not None and f.f_locals.get("i") != len(f.f_locals["spans"]) - 1:
    return torch.empty_like(x)
return work(x)
"""))
    assert status in NOT_BELIEVED or samples_per_block(result) < 3, detail
    assert "many calls" in detail or "clock" in detail or result.correct


def test_samples_that_are_edited_in_the_runner_are_not_believed(work):
    status, detail, result = judged(work, cheat("""
f = frame()
if f is not None and len(f.f_locals.get("ns", ())) > 1:
    f.f_locals["ns"][:] = [v // 8 + 1 for v in f.f_locals["ns"]]
    f.f_locals["host"][:] = [v // 8 + 1 for v in f.f_locals["host"]]
return work(x)
"""))
    assert status in NOT_BELIEVED or samples_per_block(result) < 3, detail


@pytest.mark.parametrize("clocks", ["vars(sys.modules['kernelevolve.platforms.device'])",
                                    "type(frame().f_locals['watch']).start.__globals__"])
def test_a_clock_that_is_replaced_in_the_runner_is_not_believed(work, clocks):
    status, detail, _ = judged(work, cheat(f"""
if frame() is not None and self.last is None:
    real = self.last = time.perf_counter_ns
    {clocks}["_clock"] = lambda: real() // 10
return work(x)
"""))
    assert status in NOT_BELIEVED, detail


def test_work_that_goes_on_in_a_thread_after_the_call_is_seen(work):
    status, detail, _ = judged(work, cheat("""
if frame() is None:
    return work(x)
out = torch.empty_like(x)
threading.Thread(target=lambda: out.copy_(work(x))).start()
return out
"""))
    assert status is not Status.CORRECT, detail


def test_a_slow_first_call_and_a_kept_workspace_are_honest(work):
    status, detail, result = judged(work, cheat("""
if self.last is None:
    time.sleep(0.3)
    self.last = torch.empty(160, 160)
torch.mm(x, x, out=self.last)
return torch.mm(self.last, x).softmax(dim=-1)
"""))
    assert status is Status.CORRECT, detail
    assert result.ratios["eager"].value > 0.2


def test_what_a_session_found_is_kept_with_the_result(work):
    _, detail, result = judged(work, WORK_NEW)
    assert result.correct, detail
    assert result.stopped in {"tight", "settled", "time"}
    assert result.audit["audits"] >= 2
    assert result.audit["verified"] >= 3
    assert 0 < result.audit["claimed_ms"] < 100
    assert result.audit["audited_ms"] > 0
    assert all(flag.partition(":")[0] in {"drift", "throttling", "contention", "launch-bound"} for flag in result.flags)


def test_the_environment_names_the_harness_the_versions_and_the_flags(work):
    environment = work.baseline.environment
    assert "+" in environment["harness"]
    assert environment["versions"]["torch"]
    assert environment["flags"]["threads"] == work.threads
    assert environment["flags"]["environment"]["OMP_NUM_THREADS"] == str(work.threads)
    assert environment["isolation"]


HONEST = {
    "a microsecond": ("x + 1", "torch.randn(8)"),
    "integers": ("x * 3 - 1", "torch.randint(0, 1000, (64, 64))"),
    "no dimensions": ("x.sum()", "torch.randn(3000)"),
    "random numbers": ("torch.nn.functional.dropout(x, 0.5)", "torch.randn(64, 64)"),
    "a fifth of a second": ("(time.sleep(0.2), x + 1)[1]", "torch.randn(64)"),
    "ragged": ("x * 2", "torch.randn(int(torch.randint(50, 99, ())))"),
}


@pytest.mark.parametrize("kind", HONEST)
def test_honest_kernels_of_every_kind_are_believed(kind, tmp_path):
    body, inputs = HONEST[kind]
    source = f"""
import time

class Model(nn.Module):
    def forward(self, x):
        return {body}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
    candidate = source.replace("Model(", "ModelNew(")
    with Evaluator(problem(source), settings=dataclasses.replace(UNREAD, time_s=0.1), scratch=tmp_path) as e:
        notes = e.start().notes
        result = e.evaluate(proposal(candidate))
        assert result.status is Status.CORRECT, result.detail
        assert any("again and again" in note for note in notes) == (kind == "integers")
        assert any("launch-bound" in flag for flag in result.flags) == (result.timings[0].inner_repeats > 1)


def burn(until):
    while time.monotonic() < until:
        pass


def test_a_busy_machine_makes_nobody_a_liar(work):
    burners = [multiprocessing.get_context("spawn").Process(target=burn, args=(time.monotonic() + 60,), daemon=True)
               for _ in range(max(1, (os.cpu_count() or 2) // 2))]
    for burner in burners:
        burner.start()
    try:
        found = [judged(work, WORK_NEW) for _ in range(10)]
    finally:
        for burner in burners:
            burner.kill()
            burner.join()
    assert [(status, detail) for status, detail, _ in found if status in NOT_BELIEVED] == []
    # That the machine is too busy to tell may be said of one or two, and is held against nobody.
    assert sum(status is Status.CORRECT for status, _, _ in found) >= 8, [detail for _, detail, _ in found]
    assert any("contention" in flag for _, _, result in found for flag in result.flags)
