"""The loop with the package's own evaluator and real processes, on a problem small enough for a test."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelevolve import Settings, Study
from kernelevolve.records import Context, Proposal, Status
from tests.fakes import Writer

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2

def get_inputs():
    return [torch.randn(64, 64)]

def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {expression}
"""
EXPRESSIONS = ("x.clamp(min=0) * 2", "x + 1", "(x + x).relu()", "exit(3)")
QUICK = Settings(time_s=0.05, baseline_time_s=0.05, rounds=6, baselines=("eager",))


class Canned(Writer):
    """Four programs in turn: right, wrong, right, and one that ends its process."""

    def write(self, context: Context) -> Proposal:
        turn = sum(len(key) == 64 for key in context.tried) % len(EXPRESSIONS)
        return Proposal(CANDIDATE.format(expression=EXPRESSIONS[turn]), "pytorch", self.name)


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "relu2.py"
    path.write_text(PROBLEM)
    return path


def test_a_real_study_gives_each_candidate_its_status_and_can_be_resumed(tmp_path, problem) -> None:
    with Study(problem, name="s", workspace=tmp_path / "w", operator=Canned(), settings=QUICK) as study:
        run = study.run(4)
        statuses = [n.status for n in study.tree.nodes]
        assert statuses[0] is statuses[2] is Status.CORRECT
        assert statuses[1] is Status.WRONG_VALUE
        assert statuses[3] in (Status.CRASHED, Status.RUNTIME_ERROR)
        assert run.best in (1, 3)
        assert study.best.result.confirmations
    again = Study.resume("s", workspace=tmp_path / "w", operator=Canned())
    with again:
        assert again.tree.nodes == study.tree.nodes
        assert again.settings == QUICK
    recomputed = again.workspace.sql("SELECT node, baseline, ratio FROM ratio WHERE session = 'evaluate'")
    assert len(recomputed) == 2
    for row in recomputed.itertuples():
        assert row.ratio == pytest.approx(again.tree.node(row.node).result.ratios[row.baseline].value, rel=1e-9)
    stages = {r.kind for r in records_of(again)}
    assert {"study", "environment", "baseline", "ask", "proposal", "stage", "node", "confirm", "end"} <= stages


def stat(pid: int) -> list[str]:
    """State, parent and so on of a process, from /proc; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def runs(pid: int) -> bool:
    return bool(fields := stat(pid)) and fields[0] != "Z"


def descendants(pid: int) -> set[int]:
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]
    parents = {p: int(fields[1]) for p in pids if (fields := stat(p))}
    found, grown = {pid}, True
    while grown:
        new = {child for child, parent in parents.items() if parent in found} - found
        found, grown = found | new, bool(new)
    return found - {pid}


def records_of(study: Study):
    from kernelevolve.store import journal
    from kernelevolve.store.workspace import study_folder

    return journal.read_folder(study.workspace.journal_path / study_folder(study.name)).records


def test_a_killed_real_study_leaves_no_process_and_goes_on(tmp_path, problem) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from kernelevolve import Study
from tests.test_study_real import QUICK, Canned
study = Study({str(problem)!r}, name="s", workspace={str(tmp_path / "w")!r}, operator=Canned(), settings=QUICK)
print("begun", flush=True)
study.run(1000, progress=lambda node: print(node.number, flush=True))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    assert process.stdout.readline() == "1\n"
    family = descendants(process.pid)
    assert family
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    acknowledged = 1 + len(process.stdout.read().split())
    deadline = time.monotonic() + 20
    while any(map(runs, family)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in family if runs(pid)]
    with Study.resume("s", workspace=tmp_path / "w", operator=Canned()) as study:
        assert len([n for n in study.tree.nodes if n.status is not Status.LOST]) >= acknowledged
        assert study.step().number == len(study.tree)
