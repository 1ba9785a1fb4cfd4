"""Steering a study, and how its runs end."""

import os
import signal

import pytest

from kernelevolve import Greedy, Random, Stall, Study, errors
from kernelevolve.records import Node, Proposal, Result, Status
from tests import fakes
from tests.fakes import Judge, Writer
from tests.test_study import resume

# ---- steering ----


def test_a_submitted_kernel_is_a_candidate_like_any_other(tmp_path) -> None:
    with fakes.study(tmp_path, name="s", evaluator=Judge(failing=0.0)) as study:
        for _ in range(3):
            study.step()
        asked = study.select()
        file = tmp_path / "mine.py"
        file.write_text("import triton\nx = 5\n")
        node = study.submit(file, parent=2)
        assert node.parents == (2,)
        assert node.proposal.operator == "hand"
        assert node.proposal.language == "triton"
        assert node.fitness > 0
        study.record(study.evaluate(study.write(study.recall(asked))))
        assert study.tree.node(5).proposal.selection == asked
        with pytest.raises(errors.StudyError, match="no node 77"):
            study.submit("x = 6", parent=77)
    assert [a.name for a in study.workspace.study("s").acts] == ["submit"]
    with resume(tmp_path) as again:
        assert again.tree.nodes == study.tree.nodes


def test_pins_vetoes_hints_and_changes_survive_a_resume(tmp_path) -> None:
    with fakes.study(tmp_path, name="s", evaluator=Judge(failing=0.0)) as study:
        for _ in range(4):
            study.step()
        study.pin(1)
        study.veto(2)
        study.pin(3)
        study.pin(3, on=False)
        study.veto(4)
        study.pin(4)
        study.hint(1, "split the reduction")
        study.use(policy=Greedy(patience=7))
        assert study.select().parents in {(1,), (4,)}
    with resume(tmp_path) as again:
        assert again.tree.pinned == study.tree.pinned == {1, 4}
        assert again.tree.vetoed == study.tree.vetoed == {2}
        assert again.tree.hints == {1: ["split the reduction"]}
        assert again.policy == Greedy(patience=7)
        assert again.select() == study.select()


def test_an_act_on_an_unknown_node_is_refused_and_not_journalled(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        for act in (study.pin, study.veto, lambda n: study.hint(n, "x")):
            with pytest.raises(errors.StudyError, match="no node 3"):
                act(3)
    assert study.workspace.study("s").acts == []


def test_a_new_policy_hears_of_all_earlier_nodes(tmp_path) -> None:
    class Listening(Random):
        heard: tuple[int, ...] = ()

        def observe(self, node: Node) -> None:
            self.heard += (node.number,)

    with fakes.study(tmp_path) as study:
        for _ in range(3):
            study.step()
        policy = Listening()
        study.use(policy=policy)
        study.step()
    assert policy.heard == (1, 2, 3, 4)


# ---- runs and their ends ----


def test_best_without_a_correct_kernel_is_an_error_with_the_counts(tmp_path) -> None:
    with fakes.study(tmp_path, evaluator=Judge(failing=1.0)) as study:
        with pytest.raises(errors.StudyError, match=r"\(no nodes\)"):
            _ = study.best
        run = study.run(6)
        with pytest.raises(errors.StudyError, match=r"no correct, timed kernel yet \(.*wrong_value.*\)"):
            _ = study.best
    assert run.best is None
    assert sum(run.counts.values()) == 6


def test_the_best_was_measured_again_in_fresh_processes(tmp_path) -> None:
    judge = Judge(failing=0.0, again=0.5)
    with fakes.study(tmp_path, name="s", evaluator=judge) as study:
        run = study.run(20)
    assert study.best.result.confirmations
    assert run.best == study.best.number
    assert 3 <= len(judge.confirmed) <= 6
    assert run.ratio == study.tree.score(study.best.number) < study.best.fitness
    with resume(tmp_path, evaluator=Judge(failing=0.0)) as again:
        assert again.best == study.best


def test_any_correct_node_can_be_measured_again(tmp_path) -> None:
    with fakes.study(tmp_path, name="s") as study:
        study.run(8)
        node = next(n for n in study.tree.nodes if n.result.correct and not n.result.confirmations)
        (again,) = study.confirm(node.number)
        assert len(again.result.confirmations) == 3
        assert study.tree.node(node.number) == again
        failed = next(n for n in study.tree.nodes if not n.result.correct)
        with pytest.raises(errors.StudyError, match="only a correct, timed one"):
            study.confirm(failed.number)
    assert study.workspace.study("s").nodes[node.number] == again


def test_opening_by_name_goes_on_or_begins(tmp_path) -> None:
    for steps in (3, 6):
        study = Study.open_or_create(fakes.PROBLEM, name="s", workspace=tmp_path, operator=Writer(), evaluator=Judge())
        with study:
            study.run(3)
            assert len(study.tree) == steps
            assert study.cost["wall_s"] == sum(r.wall_s for r in study.runs) > 0
            assert 0 < study.cost["framework_share"] <= 1
    assert len(study.runs) == 2


def test_a_winner_that_fails_when_measured_again_is_not_best(tmp_path) -> None:
    class Flaky(Judge):
        def confirm(self, *proposals: Proposal) -> list[tuple[Result, ...]]:
            first, *others = super().confirm(*proposals)
            bad = Result(proposals[0], Status.WRONG_VALUE, "other inputs")
            return [(first[0], bad, first[2]), *others]

    with fakes.study(tmp_path, name="s", evaluator=Flaky(failing=0.0)) as study:
        study.run(6)
    (refuted,) = study.tree.refuted
    assert max(study.tree.nodes, key=lambda n: n.fitness).number == refuted
    assert study.best.number != refuted
    with resume(tmp_path) as again:
        assert again.tree.refuted == {refuted}
        assert again.best == study.best
    assert study.workspace.sql("SELECT node FROM best")["node"].tolist() == [study.best.number]


def test_a_harness_fault_while_confirming_refutes_nobody(tmp_path) -> None:
    class Absent(Judge):
        calls = 0

        def confirm(self, *proposals: Proposal) -> list[tuple[Result, ...]]:
            self.calls += 1
            return [(Result(p, Status.HARNESS_ERROR),) * 3 for p in proposals]

    judge = Absent(failing=0.0)
    with fakes.study(tmp_path, evaluator=judge) as study:
        run = study.run(5)
    assert study.tree.refuted == set()
    assert run.best is not None
    assert judge.calls == 1


def test_a_run_ends_by_the_rule_that_comes_first(tmp_path) -> None:
    with fakes.study(tmp_path, evaluator=Judge(failing=0.0)) as study:
        assert study.run(steps=2).steps == 2
        assert "target was 0.1x" in study.run(target=0.1).reason
        assert "used of 0.05 s" in study.run(wall_s=0.05).reason
        assert "no improvement" in study.run(steps=10**6, stop=Stall(4)).reason
        assert study.run().steps == 24
        with pytest.raises(errors.SettingError, match="steps must be a number above 0"):
            study.run(0)


def test_the_end_is_journalled_with_where_the_time_went(tmp_path) -> None:
    with fakes.study(tmp_path, name="s", evaluator=Judge(delay_s=0.01)) as study:
        run = study.run(10)
    (end,) = study.workspace.study("s").ends
    assert end["steps"] == 10
    assert end["counts"] == run.counts
    parts = {"select", "recall", "write", "record", "build", "check", "time", "baseline", "confirm"}
    assert parts <= set(end["seconds"])
    assert sum(run.seconds.values()) == pytest.approx(run.wall_s, rel=0.2)
    measured = sum(run.seconds[part] for part in ("build", "check", "time", "baseline", "confirm"))
    assert run.framework_share == pytest.approx(1 - measured / run.wall_s, abs=0.02)


def test_ctrl_c_once_ends_after_the_candidate_under_way(tmp_path) -> None:
    def interrupt(node: Node) -> None:
        if node.number == 3:
            os.kill(os.getpid(), signal.SIGINT)

    judge = Judge(failing=0.0)
    with fakes.study(tmp_path, name="s", evaluator=judge) as study:
        run = study.run(50, progress=interrupt)
        assert (run.reason, run.steps) == ("interrupted", 3)
        assert judge.confirmed == []
        assert study.run(2).steps == 2
    log = study.workspace.study("s")
    assert [e["reason"] for e in log.ends] == ["interrupted", "2 steps done"]
    assert log.lost == ()


def test_ctrl_c_twice_drops_the_candidate_and_leaves_a_clean_study(tmp_path) -> None:
    class Slow(Judge):
        def evaluate(self, proposal: Proposal) -> Result:
            if len(self.evaluated) == 2:
                os.kill(os.getpid(), signal.SIGINT)
                os.kill(os.getpid(), signal.SIGINT)
            return super().evaluate(proposal)

    judge = Slow()
    with fakes.study(tmp_path, name="s", evaluator=judge) as study:
        with pytest.raises(KeyboardInterrupt):
            study.run(50)
        assert [n.status for n in study.tree.nodes].count(Status.LOST) == 1
        assert study.tree.node(3).source
        assert judge.closed == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        judge.evaluated += ["", ""]
        assert study.run(2).steps == 2
        assert judge.started == 2
    assert [e["reason"] for e in study.workspace.study("s").ends] == ["ended by KeyboardInterrupt", "2 steps done"]


def test_a_full_disk_stops_the_run_and_loses_nothing_that_was_acknowledged(tmp_path, monkeypatch) -> None:
    real, seen = os.write, []

    def fills_up(fd: int, data: bytes) -> int:
        if data.startswith(b'{"v":1') and len(seen) == 4:
            raise OSError(28, "No space left on device")
        return real(fd, data)

    with fakes.study(tmp_path, name="s") as study:
        monkeypatch.setattr(os, "write", fills_up)
        with pytest.raises(errors.StoreError, match="The disk is full"):
            study.run(50, progress=seen.append)
        monkeypatch.undo()
        assert study.tree.nodes == seen
        study.run(3)
    with resume(tmp_path) as again:
        assert [n for n in again.tree.nodes if n.status is not Status.LOST] == study.tree.nodes
        assert len(again.tree) - len(study.tree) <= 1
