"""The loop, with a writer and an evaluator that answer at once: choices, durability, steering, and how runs end."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelevolve import Study, errors
from kernelevolve.records import Context, Interval, Problem, Proposal, Result, Status
from kernelevolve.store import Workspace
from kernelevolve.testing.policies import choices
from tests import fakes
from tests.fakes import Judge, Writer


def resume(workspace: Path, name: str = "s", **arguments) -> Study:
    return Study.resume(name, workspace=workspace, operator=arguments.pop("operator", Writer()),
                        evaluator=arguments.pop("evaluator", Judge()), **arguments)


def sources(study: Study) -> list[str]:
    return [n.source for n in study.tree.nodes if n.status is not Status.LOST]


# ---- the stages ----


def test_the_five_stages_by_hand_make_a_node(tmp_path) -> None:
    with fakes.study(tmp_path) as study:
        selection = study.select()
        context = study.recall(selection)
        proposal = study.write(context)
        result = study.evaluate(proposal)
        node = study.record(result)
        assert selection.is_draft
        assert context.selection is selection
        assert proposal.selection is selection
        assert result.proposal is proposal
        assert node.result is result
        assert study.tree.nodes == [node]
        assert study.name == "cpu-rms_norm-1"


def test_stages_can_be_called_again_without_making_more_of_anything(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        assert study.select() == study.select()
        result = study.evaluate(study.write(study.recall(study.select())))
        assert study.record(result) is study.record(result)
        assert len(study.tree) == 1
    log = study.workspace.study("s")
    assert len(log.asks) == len(log.nodes) == 1


def test_a_child_sees_its_lineage_the_diagnosis_and_the_hints(tmp_path) -> None:
    writer = Writer()
    with fakes.study(tmp_path, operator=writer, evaluator=Judge(failing=0.0)) as study:
        for _ in range(3):
            study.step()
        study.hint(0, "for all")
        study.hint(study.tree.best.number, "for this one")
        study.step()
    draft, child = writer.contexts[0], writer.contexts[-1]
    assert draft.history == draft.parents == ()
    assert child.parents[0].number == child.selection.parents[0]
    assert child.history == child.parents
    assert child.diagnosis is not None
    assert child.hints == ("for all", "for this one")
    assert len(child.tried) == 3
    assert writer.prepared == 1


def test_the_evaluator_is_started_at_the_first_evaluation_only(tmp_path) -> None:
    judge = Judge()
    with fakes.study(tmp_path, evaluator=judge) as study:
        proposal = study.write(study.recall(study.select()))
        assert judge.started == 0
        study.record(study.evaluate(proposal))
        study.step()
        assert judge.started == 1
    assert judge.closed == 1


def test_a_duplicate_is_named_and_not_measured_but_is_a_step(tmp_path) -> None:
    judge = Judge(failing=0.0)
    with fakes.study(tmp_path, operator=Writer(choices=2), evaluator=judge) as study:
        run = study.run(10)
    assert run.steps == len(study.tree) == 10
    duplicates = [n for n in study.tree.nodes if n.status is Status.DUPLICATE]
    assert len(judge.evaluated) == 2
    assert len(duplicates) == 8
    for node in duplicates:
        assert study.tree.node(node.result.duplicate_of).source == node.source
        assert f"the same program as node {node.result.duplicate_of}" in node.result.detail
        assert node.fitness == 0


def test_comments_and_layout_do_not_make_another_program(tmp_path) -> None:
    judge = Judge(failing=0.0)
    with fakes.study(tmp_path, evaluator=judge) as study:
        study.submit('"""One."""\nx = 1  # one\n')
        again = study.submit("\n\nx  =  1\n")
        other = study.submit("x = 2\n")
    assert again.result.duplicate_of == 1
    assert other.status is Status.CORRECT


@pytest.mark.parametrize("failure", [Status.NO_CODE, Status.TRUNCATED, Status.REFUSED])
def test_a_writer_that_offers_nothing_makes_a_node_with_its_status(tmp_path, failure: Status) -> None:
    class Silent(Writer):
        def write(self, context: Context) -> Proposal:
            return Proposal("", "cpp", "fake", failure=failure, failure_detail="nothing left to try")

    judge = Judge()
    with fakes.study(tmp_path, operator=Silent(), evaluator=judge) as study:
        node = study.step()
    assert (node.status, node.result.detail, node.fitness) == (failure, "nothing left to try", 0)
    assert judge.evaluated == []


def test_a_bug_of_this_package_has_its_own_status_and_ends_the_run_when_it_stays(tmp_path) -> None:
    class BrokenJudge(Judge):
        def evaluate(self, proposal: Proposal) -> Result:
            raise RuntimeError("judge broke")

    class BrokenWriter(Writer):
        def write(self, context: Context) -> Proposal:
            raise ValueError("writer broke")

    cases = ({"evaluator": BrokenJudge()}, "judge broke"), ({"operator": BrokenWriter()}, "writer broke")
    for broken, message in cases:
        with fakes.study(tmp_path, **broken) as study:
            run = study.run(50)
        assert run.steps == 3
        assert "failed 3 times in a row" in run.reason
        assert message in run.reason
        assert {n.status for n in study.tree.nodes} == {Status.HARNESS_ERROR}


def test_a_problem_that_the_operator_cannot_do_is_an_error_without_nodes(tmp_path) -> None:
    class Uncovering(Writer):
        def prepare(self, problem: Problem, facts: object) -> None:
            raise errors.NotCoveredError("no template for a sort")

    with fakes.study(tmp_path, operator=Uncovering(), name="s") as study:
        with pytest.raises(errors.NotCoveredError, match="no template for a sort"):
            study.run(5)
        assert len(study.tree) == 0
    assert study.workspace.study("s").lost == ()


# ---- choices ----


def test_same_seed_and_same_answers_give_the_same_tree(tmp_path) -> None:
    trees = []
    for seed in (7, 7, 8):
        with fakes.study(tmp_path, seed=seed, policy="random") as study:
            study.run(15)
        trees.append((choices(study.tree), sources(study)))
    assert trees[0] == trees[1]
    assert trees[0] != trees[2]


@pytest.mark.parametrize("policy", ["greedy", "random", "one-shot"])
@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_resumed_study_makes_the_choices_of_an_uninterrupted_one(tmp_path, policy: str, cut: int) -> None:
    with fakes.study(tmp_path / "whole", name="s", policy=policy) as whole:
        whole.run(12)
    with fakes.study(tmp_path / "cut", name="s", policy=policy) as first:
        for _ in range(cut):
            first.step()
    with resume(tmp_path / "cut") as second:
        second.run(12 - cut)
    assert choices(second.tree) == choices(whole.tree)
    assert sources(second) == sources(whole)
    assert second.best.number == whole.best.number


def test_a_study_killed_25_times_loses_no_acknowledged_node_and_ends_as_an_uninterrupted_one(tmp_path) -> None:
    rng = random.Random(0)
    acknowledged: set[int] = set()
    fakes.study(tmp_path / "killed", name="s").close()
    for _ in range(25):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read_end)
                study = resume(tmp_path / "killed", evaluator=Judge(delay_s=0.003))
                while True:
                    os.write(write_end, study.step().number.to_bytes(4, "big"))
            finally:
                os._exit(1)
        os.close(write_end)
        first = os.read(read_end, 4)
        time.sleep(rng.uniform(0, 0.08))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        data = first
        while more := os.read(read_end, 65536):
            data += more
        os.close(read_end)
        acknowledged |= {int.from_bytes(data[i : i + 4], "big") for i in range(0, len(data) - len(data) % 4, 4)}
        log = Workspace(tmp_path / "killed").study("s")
        assert acknowledged <= set(log.nodes)
        assert not log.damage
        assert [n.status for n in log.nodes.values() if n.number in acknowledged].count(Status.LOST) == 0
    with resume(tmp_path / "killed") as killed:
        done = len(sources(killed))
        lost = [n for n in killed.tree.nodes if n.status is Status.LOST]
        assert [n.number for n in killed.tree.nodes] == list(range(1, len(killed.tree) + 1))
        assert len(lost) <= 25
        assert len(lost) > 0
        killed.step()
    with fakes.study(tmp_path / "whole", name="s") as whole:
        for _ in range(done + 1):
            whole.step()
    assert sources(killed) == sources(whole)




def test_what_was_under_way_becomes_a_lost_node_with_its_source(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.step()
        proposal = study.write(study.recall(study.select()))
    with resume(tmp_path) as again:
        lost = again.tree.node(2)
        assert lost.status is Status.LOST
        assert lost.source == proposal.source
        assert again.step().number == 3
        assert again.tree.node(3).source == proposal.source  # the same choice as if nothing had happened
    with resume(tmp_path) as third:
        assert third.tree.nodes == again.tree.nodes


def test_a_program_that_is_lost_twice_is_not_tried_again(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        proposal = study.write(study.recall(study.select()))
    for _ in range(2):
        with resume(tmp_path) as again:
            if again.tree.counts() == {"lost": 1}:
                assert again.write(again.recall(again.select())).source == proposal.source
    with resume(tmp_path) as last:
        assert last.tree.counts() == {"lost": 2}
        node = last.step()
    assert node.status is Status.DUPLICATE
    assert "which was lost" in node.result.detail


def test_a_study_open_elsewhere_cannot_be_resumed_meanwhile(tmp_path) -> None:
    with fakes.study(tmp_path, name="s"), pytest.raises(errors.StoreError, match="close\\(\\) it there"):
        resume(tmp_path)
    resume(tmp_path).close()


# ---- how things look ----


def test_everything_draws_itself_and_nothing_hostile_gets_through(tmp_path) -> None:
    evil = "<script>\nalert(1)</script>"

    class Evil(Writer):
        def write(self, context: Context) -> Proposal:
            return Proposal(f"x = '''{evil}{context.seed}'''", evil, evil, rationale=evil, move=evil)

    class EvilJudge(Judge):
        def evaluate(self, proposal: Proposal) -> Result:
            return Result(proposal, Status.CORRECT, evil, ratios={evil: Interval(2, 1, 3)}, log=evil, rules=evil)

    problem = Problem(f"cpu/{evil}", "", "0" * 32)
    with fakes.study(tmp_path, problem=problem, name="<script>", operator=Evil(), evaluator=EvilJudge()) as study:
        study.hint(0, evil)
        selection = study.select()
        context = study.recall(selection)
        proposal = study.write(context)
        node = study.record(study.evaluate(proposal))
        run = study.run(2)
        for thing in (selection, context, proposal, node.result, node, run, study):
            drawn = thing._repr_html_()
            assert "<script" not in drawn
            assert len(drawn) < 20_000
            assert "\n" not in repr(thing)
            assert len(repr(thing)) < 300
        assert "&lt;script&gt;" in node._repr_html_()


def test_importing_the_package_is_light(tmp_path) -> None:
    code = """
import sys, kernelevolve
heavy = {"torch", "triton", "duckdb", "pandas", "plotly", "IPython", "anthropic"} & set(sys.modules)
assert not heavy, heavy
assert {"Study", "problem", "Greedy"} <= set(dir(kernelevolve))
from kernelevolve.store import Workspace
from kernelevolve.search import Tree
heavy = {"torch", "triton", "plotly", "IPython"} & set(sys.modules)
assert not heavy, heavy
try:
    kernelevolve.nonsense
except AttributeError as error:
    assert "nonsense" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
