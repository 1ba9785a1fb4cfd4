import dataclasses
import os
import signal
from pathlib import Path

import pytest

from kernelevolve import errors
from kernelevolve.evaluation import Evaluator
from kernelevolve.records import Diagnosis, Proposal, Status, from_dict, to_dict
from kernelevolve.settings import Settings
from tests.evaluation.problems import ADD, ADD_NEW, QUICK, problem, proposal

MANY = """
class Model(nn.Module):
    def forward(self, lengths, x):
        kept = torch.clamp(lengths, max=3)
        index = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
        start = torch.cumsum(lengths, 0) - lengths
        inside = torch.arange(x.numel()) - start[index] < 3
        return {"values": x[inside], "lengths": kept, "more": [inside, (x.sum(), 7, None)]}

def get_inputs():
    lengths = torch.randint(0, 9, (50,))
    return [lengths, torch.randn(int(lengths.sum()))]

def get_init_inputs():
    return []

ModelHonest = Model
"""
STATEFUL = """
class Model(nn.Module):
    def __init__(self, features, scale):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.register_buffer("scale", scale)

    def forward(self, x):
        return self.linear(x) * self.scale

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return [8, torch.rand(8)]
"""
WORK = """
import time

class Model(nn.Module):
    def forward(self, x):
        time.sleep(0.002)
        return x + 1

def get_inputs():
    return [torch.randn(16)]

def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def add(tmp_path_factory):
    with Evaluator(problem(ADD), settings=QUICK, scratch=tmp_path_factory.mktemp("scratch")) as e:
        yield e


def evaluate(source, candidate, **arguments):
    with Evaluator(problem(source), settings=QUICK, **arguments) as e:
        return e.evaluate(proposal(candidate))


def test_a_correct_candidate_has_all_its_evidence(add):
    result = add.evaluate(proposal(ADD_NEW))
    assert result.correct, result.detail
    assert {t.name for t in result.timings} == {"candidate", "eager"}
    assert all(len(t.samples_ms) == len(t.rounds) for t in result.timings)
    assert len({t.inner_repeats for t in result.timings}) == 1
    assert result.reference == "eager"
    assert result.errors[0].passed
    assert {"start", "build", "check", "time"} <= result.stage_s.keys()
    assert result.environment == add.baseline.environment["id"]
    assert from_dict(type(result), to_dict(result)) == result


def test_the_secret_seeds_differ_from_one_evaluation_to_the_next(add):
    trials = {add.evaluate(proposal(ADD_NEW.replace("y + x", "y * x"))).detail for _ in range(2)}
    assert len(trials) == 2


def test_several_integer_boolean_and_ragged_outputs_in_a_nest_are_judged():
    with Evaluator(problem(MANY), settings=QUICK) as e:
        for old, new, status in [
            ("", "", Status.CORRECT),
            ("max=3", "max=4", Status.WRONG_VALUE),
            ("x[inside]", "x", Status.WRONG_SHAPE),
            ("kept,", "kept.int(),", Status.WRONG_DTYPE),
            ('"more": [', '"more": [None, ', Status.WRONG_STRUCTURE),
            ("7, None", "8, None", Status.WRONG_STRUCTURE),
        ]:
            candidate = MANY.replace(old, new).replace("ModelHonest", "ModelNew")
            assert e.evaluate(proposal(candidate)).status is status, new


def test_state_is_loaded_after_construction_whatever_the_constructor_drew():
    candidate = STATEFUL.replace("Model(", "ModelNew(").replace("__init__()", "__init__(); torch.rand(99)")
    assert evaluate(STATEFUL, candidate).correct


PACKED = """
class ModelNew(nn.Module):
    def __init__(self, features, scale):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.register_buffer("scale", scale)
        self.packed, self.version = None, None

    def forward(self, x):
        if self.packed is None{again}:
            self.packed, self.version = self.linear.weight.detach().t().contiguous(), self.linear.weight._version
        return (x @ self.packed + self.linear.bias) * self.scale
"""


def test_weights_that_are_packed_once_are_found_out_when_new_ones_come():
    with Evaluator(problem(STATEFUL), settings=QUICK) as e:
        stale = e.evaluate(proposal(PACKED.replace("{again}", "")))
        assert stale.status is Status.WRONG_VALUE, stale.detail
        assert "check" in stale.stage_s
        assert "time" not in stale.stage_s
        assert stale.detail.startswith("stale weights: right in a fresh model")
        fresh = e.evaluate(proposal(PACKED.replace("{again}", " or self.version != self.linear.weight._version")))
        assert fresh.correct, fresh.detail


def test_weights_under_other_names_cannot_be_refreshed_and_the_detail_names_them():
    result = evaluate(STATEFUL, STATEFUL.replace("Model(", "ModelNew(").replace("self.linear", "self.dense"))
    assert result.status is Status.WRONG_VALUE
    assert "has no 'linear.weight', 'linear.bias'" in result.detail


@pytest.mark.parametrize("count", [1, 2, 3])
def test_buffers_that_take_turns_are_found(add, count):
    turns = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers_, self.calls = [torch.empty(8, 16) for _ in range(COUNT)], 0

    def forward(self, x, y):
        self.calls += 1
        return torch.add(x, y, out=self.buffers_[self.calls % COUNT])
"""
    result = add.evaluate(proposal(turns.replace("COUNT", str(count))))
    assert result.status is Status.DISHONEST, result.detail
    assert "buffer" in result.detail


FORGED = """
import kernelevolve.workers.channel as channel
send = channel.Channel.send

def forge(self, message, *more):
    if "ns" in message and "tree" not in message:
        message = ANSWER
    send(self, message, *more)

channel.Channel.send = forge
""" + ADD_NEW


@pytest.mark.parametrize("answer", ["{}", "{'ns': 3, 'host': 'x'}", "{'ns': [1e999], 'host': [1], 'issue': [1]}", "[]",
                                    "{'error': 7}"])
def test_a_malformed_answer_during_timing_is_the_candidates_own_fault(answer):
    with Evaluator(problem(ADD), settings=dataclasses.replace(QUICK, read_source=False)) as e:
        quiet = FORGED.replace("ANSWER", answer).replace("channel.Channel.send = forge", "")
        hook = "        if not hasattr(self, 'n'):\n            self.n = 0\n        self.n += 1\n" \
               "        if self.n > 4: channel.Channel.send = forge\n"
        result = e.evaluate(proposal(quiet.replace("        return y + x", hook + "        return y + x")))
    assert result.status in (Status.DISHONEST, Status.CRASHED), result.detail


def test_a_survey_judges_the_same_outputs_under_every_rule_set():
    mild = ADD.replace("torch.randn(8, 16)", "torch.randint(0, 2, (8, 16)).float()")
    half = ADD_NEW.replace("y + x", "(y.half() + x.half() + 1e-3).float()")
    with Evaluator(problem(mild), settings=QUICK) as e:
        found = e.survey(proposal(half))
        assert {name: r.status for name, r in found.items()} == {
            "strict": Status.WRONG_VALUE, "kernelbench-v0.1": Status.CORRECT, "kernelbench-main": Status.WRONG_VALUE}
        assert all(r.rules == name and r.errors and not r.timings for name, r in found.items())
        assert "relative error" in found["strict"].detail
        assert {r.status for r in e.survey(proposal("raise ValueError")).values()} == {Status.COMPILE_ERROR}
        assert {r.status for r in e.survey(proposal(ADD_NEW.replace("y + x", "x[:1]"))).values()} == {
            Status.WRONG_SHAPE}
        empty = Proposal(source="", language="", operator="llm")
        assert {r.status for r in e.survey(empty).values()} == {Status.NO_CODE}
        assert {r.status for r in e.survey(proposal(ADD_NEW)).values()} == {Status.CORRECT}


def test_aliased_inputs_arrive_aliased():
    source = ADD.replace("return [torch.randn(8, 16), torch.randn(8, 16)]",
                         "base = torch.randn(8, 17)\n    return [base[:, 1:], base[:, :-1]]")
    candidate = """
class ModelNew(nn.Module):
    def forward(self, x, y):
        assert x.data_ptr() - y.data_ptr() == 4 and x.stride() == (17, 1)
        return x + y
"""
    result = evaluate(source, candidate)
    assert result.correct, result.detail


def test_a_view_is_honest_where_the_reference_returns_one():
    source = ADD.replace("x + y", "x.T")
    assert evaluate(source, ADD_NEW.replace("y + x", "x.T")).correct


def test_dropout_is_reseeded_so_that_an_equal_candidate_passes():
    source = ADD.replace("x + y", "torch.nn.functional.dropout(x, 0.5, training=self.training)")
    assert evaluate(source, source.replace("Model(", "ModelNew(")).correct


def test_rule_sets_disagree_on_half_precision():
    candidate = ADD_NEW.replace("y + x", "(y.half() + x.half()).float()")
    assert evaluate(ADD, candidate, rules="strict").status is Status.WRONG_VALUE
    # Scaled inputs are our own: the old rule is asked about the numbers that it was made for.
    mild = ADD.replace("torch.randn(8, 16)", "torch.randint(0, 2, (8, 16)).float()")
    assert evaluate(mild, candidate, rules="kernelbench-v0.1").correct


def test_references_are_baselines_and_a_wrong_one_is_left_out():
    source = ADD + """
class Sum(nn.Module):
    def forward(self, x, y):
        return torch.add(x, y)

class Wrong(nn.Module):
    def forward(self, x, y):
        return x - y

REFERENCES = {"sum": Sum, "wrong": Wrong}
"""
    with Evaluator(problem(source, references=("sum", "wrong")), settings=QUICK) as e:
        baseline = e.start()
        assert {t.name for t in baseline.timings} == {"eager", "sum"}
        assert "wrong is left out" in baseline.notes[0]
        assert set(e.evaluate(proposal(ADD_NEW)).ratios) == {"eager", "sum"}


def test_held_out_cases_reach_every_process():
    source = "n = 8\nCASES = {'tuned': {'n': 8}, 'held_out': {'n': 9}}\n" + ADD.replace("8, 16", "n, 16")
    only_eight = ADD_NEW.replace("return", "assert x.shape[0] == 8\n        return")
    assert evaluate(source, only_eight).correct
    assert evaluate(source, only_eight, case="held_out").status is Status.RUNTIME_ERROR


def test_a_known_factor_shows_and_equal_code_is_no_win():
    settings = dataclasses.replace(QUICK, time_s=0.5)
    with Evaluator(problem(WORK), settings=settings) as e:
        slow = e.evaluate(proposal(WORK.replace("Model(", "ModelNew(").replace("0.002", "0.006")))
        equal = e.evaluate(proposal(WORK.replace("Model(", "ModelNew(")))
    assert 0.2 < slow.ratio.value < 0.5
    assert equal.ratio.low * 0.8 < 1 < equal.ratio.high * 1.2


def test_faster_than_the_physical_bound_is_quarantined():
    with Evaluator(problem(ADD, bytes_min=10**12), settings=QUICK) as e:
        result = e.evaluate(proposal(ADD_NEW))
    assert result.status is Status.SUSPECT
    assert "physical bound" in result.detail
    assert result.timings


def test_the_profiler_sees_the_build_folder_and_its_failure_spoils_nothing():
    seen = []

    def profiler(build_dir, result, facts, problem):
        seen.append(build_dir.is_dir() and result.correct and facts["cores"] > 0)
        return {"loads": 3}, Diagnosis("memory", "waits for memory")

    def failing(build_dir, result, facts, problem):
        raise ValueError("no counters here")

    with Evaluator(problem(ADD), settings=QUICK, profiler=profiler) as e:
        result = e.evaluate(proposal(ADD_NEW))
        assert seen == [True]
        assert (result.profile, result.diagnosis.bottleneck) == ({"loads": 3}, "memory")
        e.profiler = failing
        result = e.evaluate(proposal(ADD_NEW))
        assert result.correct
        assert "no counters here" in result.profile["error"]


def test_stages_are_told_as_they_end(add):
    told = []
    add.on_stage = lambda *stage: told.append(stage)
    add.evaluate(proposal("raise ValueError"))
    add.on_stage = None
    assert [(s, status) for s, _, status in told] == [
        ("source", "ok"), ("start", "ok"), ("build", "compile_error")]


@pytest.mark.parametrize("who", ["_judge", "eager"])
def test_a_dead_judge_or_baseline_is_replaced_and_no_candidate_blamed(add, who):
    add.start()
    worker = add._bench._judge if who == "_judge" else add._bench._runners[who]
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(5)
    assert add.evaluate(proposal(ADD_NEW)).correct


def test_a_judge_that_dies_under_way_costs_a_retry_only(add):
    add.start()
    told = []

    def kill_once(stage, seconds, status):
        told.append(stage)
        if told.count("build") == 1 and stage == "build":
            os.kill(add._bench._judge.pid, signal.SIGKILL)

    add.on_stage = kill_once
    result = add.evaluate(proposal(ADD_NEW))
    add.on_stage = None
    assert result.correct
    assert told.count("build") == 2


def test_a_judge_that_keeps_dying_is_a_harness_error(add):
    def kill(stage, seconds, status):
        if stage == "build":
            os.kill(add._bench._judge.pid, signal.SIGKILL)

    add.start()
    add.on_stage = kill
    result = add.evaluate(proposal(ADD_NEW))
    add.on_stage = None
    assert result.status is Status.HARNESS_ERROR
    assert add.evaluate(proposal(ADD_NEW)).correct


def test_an_interrupt_leaves_an_evaluator_that_works(add):
    add.start()

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.7)
    try:
        with pytest.raises(KeyboardInterrupt):
            add.evaluate(proposal(ADD_NEW.replace("return", "import time; time.sleep(1.5)\n        return")))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not list(add._root.glob("candidate-*"))
    assert add.evaluate(proposal(ADD_NEW)).correct


def test_confirm_measures_in_fresh_processes(add):
    add.start()
    before = add._bench._runners["eager"].pid
    (results,) = add.confirm(proposal(ADD_NEW), n=2)
    assert [r.status for r in results] == [Status.CORRECT] * 2
    assert all(r.ratio.value > 0 for r in results)
    assert add._bench._runners["eager"].pid != before


def test_confirm_answers_each_proposal_on_its_own(add):
    (good,), (bad,) = add.confirm(proposal(ADD_NEW), proposal(ADD_NEW.replace("+", "-")), n=1)
    assert good.correct
    assert bad.status is Status.WRONG_VALUE


def test_nothing_is_left_behind(tmp_path):
    with Evaluator(problem(ADD), settings=QUICK, scratch=tmp_path) as e:
        e.evaluate(proposal(ADD_NEW))
        pids = [e._bench._judge.pid, *[w.pid for w in e._bench._runners.values()]]
    assert not list(tmp_path.iterdir())
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_kept_folders_hold_the_source(tmp_path):
    with Evaluator(problem(ADD), settings=dataclasses.replace(QUICK, keep=True), scratch=tmp_path) as e:
        e.evaluate(proposal(ADD_NEW))
    (kept,) = tmp_path.glob("*/candidate-*/kernel.py")
    assert "ModelNew" in kept.read_text()


def test_a_candidate_has_a_home_and_temporary_folder_of_its_own(add):
    result = add.evaluate(proposal("import os, tempfile, pathlib\n"
                                   "print(os.getcwd(), tempfile.gettempdir(), pathlib.Path.home())\n" + ADD_NEW))
    assert result.correct, result.detail
    assert result.log.count(str(add._root)) == 3


def test_a_proposal_without_source_is_not_evaluated(add):
    failed = Proposal(source="", language="", operator="llm", failure=Status.TRUNCATED, failure_detail="cut off")
    assert add.evaluate(failed).status is Status.TRUNCATED
    assert add.evaluate(Proposal(source=" ", language="", operator="llm")).status is Status.NO_CODE


def test_a_missing_compiler_is_the_engineers_to_know_not_the_candidates_fault(add, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(errors.MissingDependencyError):
        add.evaluate(dataclasses.replace(proposal(ADD_NEW), language="cpp"))


def test_a_problem_that_does_not_import_is_said_at_start():
    evaluator = Evaluator(problem("import nothing"), settings=QUICK)
    with pytest.raises(errors.ProblemError, match="does not import"):
        evaluator.start()


@pytest.mark.parametrize("change", [{"trials": 2}, {"rounds": 1}, {"baselines": ()}, {"build_timeout_s": 0}])
def test_settings_that_cannot_work_are_refused(change):
    with pytest.raises(errors.SettingError):
        Settings(**change)


def test_unknown_names_are_refused_before_anything_starts():
    for arguments in ({"rules": "lenient"}, {"platform": "abacus"}, {"settings": Settings(isolation="moat")}):
        with pytest.raises(errors.UnknownNameError):
            Evaluator(problem(ADD), **arguments)
