"""What a call leaves behind, beside its output, or to the library: found at run time, source unread."""

import dataclasses

import pytest
import torch

from kernelevolve.evaluation import Evaluator, fallback
from kernelevolve.evaluation.inside.guards import Guards
from kernelevolve.evaluation.inside.library_log import LibraryLog, family
from kernelevolve.platforms.device import Host
from kernelevolve.records import Problem, Proposal, Status
from kernelevolve.testing import villains
from tests.evaluation.problems import HEAD, QUICK

UNREAD = dataclasses.replace(QUICK, read_source=False)
TORCH = """
class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        {body}
        return torch.softmax(x, dim=-1) * self.weight
"""


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    one = Problem(id="test/softmax", source=villains.problem_source(), code_hash="0")
    with Evaluator(one, settings=UNREAD, scratch=tmp_path_factory.mktemp("scratch")) as e:
        yield e


def evaluate(evaluator, source, language=""):
    return evaluator.evaluate(Proposal(source=HEAD + source, language=language, operator="hand"))


def good(body="pass", top=""):
    """The C++ control with one more line in forward."""
    source = villains.good_source()
    return f"{top}\n" + source.replace("y = torch.empty_like(x)", f"{body}\n        y = torch.empty_like(x)")


@pytest.mark.parametrize(("body", "words"), [
    ("torch.set_default_dtype(torch.float64)", "default dtype was torch.float32, is torch.float64"),
    ("torch.set_num_threads(1)", "number of threads"),
    ("torch.backends.cudnn.allow_tf32 = False", "cudnn.allow_tf32"),
    ("torch.use_deterministic_algorithms(True)", "deterministic"),
    ("import os; os.chdir('/')", "working folder"),
    ("import os; os.environ['NEW'] = '1'", "environment variable NEW"),
    ("import time; time.perf_counter = print", "time.perf_counter was replaced"),
    ("torch.Tensor.copy_ = lambda a, b, *c: a", "Tensor.copy_ was replaced"),
    ("torch.equal = lambda a, b: True", "torch.equal was replaced"),
    ("import builtins; builtins.sum = max", "builtins.sum was replaced"),
    ("import json; real = json.dumps; json.dumps = lambda *a, **k: real(*a, **k)", "json.dumps was replaced"),
    ("import threading, time; threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", "thread is alive"),
    ("import subprocess; self.child = subprocess.Popen(['sleep', '9'])", "child processes are alive"),
])
def test_state_that_is_left_behind_is_dishonest_and_named(evaluator, body, words):
    result = evaluate(evaluator, TORCH.format(body=body))
    assert result.status is Status.DISHONEST, result.detail
    assert words in result.detail
    assert "check" in result.stage_s


def test_what_honest_candidates_do_leaves_nothing(evaluator):
    top = """
import concurrent.futures, multiprocessing, os, sys, threading, torch.utils.cpp_extension
os.environ["MINE"] = "1"
os.environ["PATH"] += ":/nowhere"
sys.path.insert(0, ".")
"""
    body = """torch.rand(3)
        thread = threading.Thread(target=len, args=("",))
        thread.start()
        thread.join()
        with torch.inference_mode(), torch.backends.mkldnn.flags(enabled=False):
            torch.rand(3)
"""
    result = evaluate(evaluator, top + TORCH.format(body=body))
    assert result.correct, result.detail


def test_a_compiled_pytorch_candidate_leaves_nothing(evaluator):
    slow = dataclasses.replace(UNREAD, call_timeout_s=120.0, check_timeout_s=240.0)
    candidate = TORCH.format(body="pass").replace(
        "return torch.softmax(x, dim=-1) * self.weight", "return self.fast(x, self.weight)").replace(
        "        self.weight =", "        self.fast = torch.compile(lambda x, w: torch.softmax(x, dim=-1) * w)\n"
                                 "        self.weight =")
    with Evaluator(evaluator.problem, settings=slow) as e:
        result = evaluate(e, candidate)
    assert result.correct, result.detail


def test_a_native_thread_that_goes_on_is_found(evaluator):
    loop = "std::thread([] { for (long i = 0; i < 3000000000L; ++i) sink = sink + i; }).detach();"
    candidate = good().replace("#include <cmath>", "#include <cmath>\n#include <thread>\nstatic volatile double sink;")
    candidate = candidate.replace("    #pragma omp parallel for schedule(static)", f"    {loop}")
    result = evaluate(evaluator, candidate)
    assert result.status is Status.DISHONEST, result.detail
    assert "goes on working after the call" in result.detail


LATE = """
        y = torch.softmax(x, dim=-1) * self.weight
        self.n = getattr(self, "n", 0) + 1
        if self.n == 2:
            import ctypes, _thread, time
            def late(pointer=y.data_ptr()):
                time.sleep(0.002)
                ctypes.memset(pointer, 0, 64)
            _thread.start_new_thread(late, ())
        return y
"""


def test_an_output_that_is_written_after_the_call_is_found(evaluator):
    result = evaluate(evaluator, TORCH.format(body=LATE))
    assert result.status is Status.DISHONEST, result.detail
    assert "after the call" in result.detail


def test_writes_beside_the_output_are_wrong_and_placed(evaluator):
    beyond = "ctypes.memset(y.data_ptr() + 4 * y.numel() + 512, 1, 64)"
    result = evaluate(evaluator, good().replace("return y", f"{beyond}\n        return y"))
    assert result.status is Status.WRONG_VALUE, result.detail
    assert "wrote outside its output" in result.detail
    assert "behind output 0" in result.detail


@pytest.mark.parametrize("size", [64, 4096, 300_000, 5_000_000])
def test_guard_bands_stand_still_when_only_the_output_is_written(size):
    guards = Guards([size, size // 2], "cpu")
    a, b = torch.empty(size, dtype=torch.uint8), torch.empty(size // 2, dtype=torch.uint8)
    a.zero_()
    b.zero_()
    assert guards.breach() == ""


DECOY = good().replace("return y", "{body}")


@pytest.mark.parametrize(("body", "words"), [
    ("return torch.softmax(x, -1) * self.weight", "every operator of the reference"),
    ("return getattr(torch.ops.aten, '_soft' + 'max')(x, -1, False).mul_(self.weight)", "every operator"),
    ("e = (x - x.amax(-1, True)).exp(); return e / e.sum(-1, keepdim=True) * self.weight", "library alone"),
    ("e = (x - x.amax(-1, True)).exp(); return torch.mul(e / e.sum(-1, keepdim=True), self.weight, out=y)", "alone"),
    ("return torch.cat([torch.softmax(r, -1) * self.weight for r in x.chunk(8)])", "every operator"),
    ("return torch.softmax(x, -1) * self.weight + 0 * y", "every operator"),
])
def test_a_decoy_kernel_beside_the_library_is_a_fallback(evaluator, body, words):
    result = evaluate(evaluator, DECOY.replace("{body}", body))
    assert result.status is Status.DISHONEST, result.detail
    assert result.detail.partition("fallback: ")[2].count(words) == 1
    assert result.library_ops


@pytest.mark.parametrize("old", [
    ("/ sum * weight[j]", "/ sum", "return y * self.weight"),
    ("/ sum * weight[j]", "/ sum", "y.mul_(self.weight); return y"),
])
def test_a_kernel_that_leaves_some_work_in_the_library_is_correct(evaluator, old):
    native, without, body = old
    result = evaluate(evaluator, DECOY.replace(native, without).replace("{body}", body))
    assert result.correct, result.detail
    assert sum(result.library_ops.values()) == 1
    assert evaluate(evaluator, good()).library_ops == {}
    assert evaluate(evaluator, TORCH.format(body="pass")).library_ops == {"aten._softmax": 1, "aten.mul": 1}


def log(function, *arguments):
    record = LibraryLog(arguments)
    with torch.no_grad(), record:
        output = function(*arguments)
    return record.answer([output])


def test_a_small_last_step_in_the_library_is_no_fallback():
    x = torch.randn(64, 1024)

    def two_stages(x):
        partial = torch.empty(64)
        partial.copy_(x.sum(1))
        return partial.sum()

    reference = log(lambda x: x.sum(), x)
    own = {"counts": {"aten.sum": 1}, "elements": {"sum": 64}, "library_only": False, "compiled": 0}
    assert fallback.fallback(reference, own) == ""
    assert "every operator" in fallback.fallback(reference, log(two_stages, x))


def test_a_library_result_that_a_kernel_changed_in_place_is_its_own():
    x = torch.randn(64, 64)

    def changed(x):
        y = x @ x
        Host().synchronize()
        y.numpy()[:] = 1.0  # as a kernel would: behind the dispatcher's back
        return y

    assert not log(changed, x)["library_only"]
    assert log(lambda x: (x @ x).relu().t().contiguous(), x)["library_only"]


def test_operators_are_counted_under_what_they_do():
    assert {family(n) for n in ("mm", "addmm", "bmm")} == {"matmul"}
    assert family("mul_") == family("mul") == "mul"
    assert family("_softmax") == "softmax"
    assert log(lambda x: torch.empty_like(x).copy_(x).view(-1).clone(), torch.randn(4))["counts"] == {}


def test_a_compiler_in_another_languages_candidate_is_a_fallback():
    assert "torch.compile translated 2" in fallback.fallback({"elements": {"mul": 10}}, {"compiled": 2})


@pytest.mark.parametrize("answer", [None, 3, [], {}, {"counts": 3}, {"elements": {"mul": "x", 3: 4}},
                                    {"elements": {"mul": float("inf")}, "compiled": "yes"}, {"elements": [1]}])
def test_a_malformed_log_is_no_log(answer):
    assert fallback.fallback({"elements": {"mul": 10}}, answer) == ""
    assert fallback.counts(answer) == {}
