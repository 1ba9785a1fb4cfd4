"""The command line: clean output, one message per mistake, exit codes a script can rely on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernelevolve.cli import app
from kernelevolve.records import Node
from kernelevolve.store import Workspace
from kernelevolve.testing import synthetic

COMMANDS = ("run", "resume", "list", "show", "best", "report", "doctor", "problems", "sql")


@pytest.fixture(scope="module")
def space(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("space")
    workspace = Workspace(folder)
    synthetic.write(workspace, "good", synthetic.nodes(20))
    synthetic.write(workspace, "failed", synthetic.nodes(3, failing=1))
    return folder


def call(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def read(*arguments: object):
    """Standard output of a command that must succeed with JSON and nothing else."""
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def refusal(*arguments: object) -> str:
    """The message of a command that must refuse its input."""
    done = call(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_help_answers_within_half_a_second_and_imports_nothing_heavy():
    code = ("import sys, time; t = time.process_time(); import kernelevolve.cli as c\n"
            "try: c.app(['--help'])\n"
            "except SystemExit: pass\n"
            "heavy = {'torch', 'pandas', 'plotly', 'duckdb', 'numpy', 'nbconvert'} & set(sys.modules)\n"
            "print('CPU', time.process_time() - t, 'HEAVY', sorted(heavy))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    for name in COMMANDS:
        assert name in done.stdout
    assert "HEAVY []" in done.stdout
    assert float(re.search(r"CPU ([\d.]+)", done.stdout)[1]) < 0.5


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_json(name):
    assert "--json" in call(name, "--help").stdout


def test_list_names_every_study_with_its_best(space):
    found = {s["study"]: s for s in read("list", "-w", space)["studies"]}
    assert found["good"]["verdict"] == "win"
    assert found["good"]["ratios"]["eager"]["low"] < found["good"]["ratios"]["eager"]["value"]
    assert found["failed"]["best"] is None
    text = call("list", "-w", space).stdout
    assert "good" in text
    assert "nothing correct" in text


def test_an_empty_workspace_is_no_error(tmp_path):
    assert read("list", "-w", tmp_path / "none")["studies"] == []
    assert "no studies" in call("list", "-w", tmp_path / "none").stdout
    assert not (tmp_path / "none").exists(), "reading makes nothing"


def test_show_tells_a_study_and_a_node(space):
    assert len(read("show", "good", "-w", space)["candidates"]) == 20
    from kernelevolve.records import from_dict

    node = from_dict(Node, read("show", "good", 1, "-w", space))
    assert node == Workspace(space).study("good").nodes[1]
    assert "class ModelNew" in call("show", "good", 1, "-w", space).stdout


def test_best_writes_the_source_and_nothing_else(space, tmp_path):
    source = Workspace(space).study("good").nodes[read("list", "-w", space)["studies"][0]["best"]].source
    assert call("best", "good", "-w", space).stdout == source + "\n"
    call("best", "good", "-w", space, "-o", tmp_path / "k.py")
    assert (tmp_path / "k.py").read_text() == source
    assert read("best", "good", "-w", space)["source"] == source


def test_report_writes_a_page(space, tmp_path):
    told = read("report", "good", "-w", space, "-o", tmp_path / "r.html")
    assert Path(told["path"]).stat().st_size == told["bytes"] > 1e6


def test_sql_answers_rows(space):
    rows = read("sql", "SELECT study, count(*) AS n FROM nodes GROUP BY study ORDER BY study", "-w", space)
    assert rows == [{"study": "failed", "n": 3}, {"study": "good", "n": 20}]
    assert "20" in call("sql", "SELECT count(*) FROM nodes WHERE study = 'good'", "-w", space).stdout


def test_problems_lists_suites_and_their_problems():
    assert "cpu/rms_norm" in read("problems", "cpu")["cpu"]
    assert "cpu" in read("problems")


def test_doctor_tells_what_is_here_and_never_a_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    found = read("doctor", "-w", tmp_path)
    assert found["keys"] == {"ANTHROPIC_API_KEY": "not set", "OPENAI_API_KEY": "set"}
    assert found["platforms"]["cpu"]["cores"] >= 1
    assert found["isolation"]["process"] == "available"
    assert "very-secret" not in call("doctor", "-w", tmp_path).stdout + json.dumps(found)


def test_a_self_test_that_passes_ends_with_0_and_a_table():
    done = call("doctor", "--self-test", "--quick", "--part", "left over", "--platform", "cpu",
                "--isolation", "process")
    assert done.exit_code == 0, done.stderr
    assert "✓ passed" in done.stdout
    assert "isolation process" in done.stdout
    assert "2 of 2 claims passed" in done.stdout


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A study whose one node is off by a hundred-thousandth: nothing to a tolerance, too much for float32."""
    from kernelevolve.records import Problem
    from kernelevolve.testing import villains
    from tests import fakes

    folder = tmp_path_factory.mktemp("judged")
    problem = Problem("test/softmax", villains.problem_source(), "0" * 32)
    with fakes.study(folder, problem=problem, name="s", platform="cpu") as study:
        study.submit(villains.control_source().replace("* self.weight", "* self.weight * 1.00001"))
        yield folder, study.survey(1)


def test_all_rule_sets_judge_a_node_from_the_same_outputs(judged):
    found = judged[1]
    assert found.accepted == ("kernelbench-v0.1", "kernelbench-main")
    assert re.fullmatch(r"kernelbench-v0.1 and kernelbench-main accept what strict refuses: leaf 0, error 1.0e-05, "
                        r"limit [\d.]+e-0[67]", found.sentence)
    trial = next(row for row in found.cells() if row[0] == "strict")[5]
    assert re.match(r"0: as given \(seed \d+\)", trial)
    assert "strict refuses" in found._repr_html_()
    assert "strict refuses" in repr(found)


def test_show_judges_again_under_one_rule_set(judged):
    told = read("show", "s", 1, "--rules", "strict", "-w", judged[0])
    assert told["refused"] == ["strict"]
    assert told["accepted"] == []
    assert told["results"]["strict"]["status"] == "wrong_value"


@pytest.mark.parametrize(("arguments", "message"), [
    (("show", "nope"), "no study named 'nope'"),
    (("show", "good", "1", "--rules", "lenient"), "known: kernelbench-main"),
    (("show", "good", "--rules", "all"), "name its NODE"),
    (("show", "good", "99", "--rules", "all"), "nodes 1 to 20"),
    (("doctor", "--quick"), "belong to --self-test"),
    (("doctor", "--self-test", "--villains", "absent"), "folder of villains"),
    (("doctor", "--self-test", "--isolation", "moat"), "known: auto, bubblewrap, container, process"),
    (("doctor", "--self-test", "--part", "luck"), "known: kill, left over"),
    (("show", "good", "99"), "nodes 1 to 20"),
    (("best", "failed"), "no correct kernel yet"),
    (("report", "good", "-o", "r.pdf"), r"\.html or \.ipynb"),
    (("sql", "SELEC 1"), "DuckDB refused the query"),
    (("run", "cpu/rms_norm", "--policy", "psychic"), "known: greedy"),
    (("run", "cpu/rms_norm", "--operator", "psychic"), "known: "),
    (("run", "cpu/rms_norm", "--platform", "psychic"), "known: "),
    (("run", "cpu/rms_norm", "--rules", "psychic"), "known: "),
    (("run", "a.py", "b.py", "--name", "x"), "--name names one study"),
    (("run", "absent.py"), "no such file"),
    (("resume", "nope"), "no study named"),
])
def test_a_mistake_gets_one_message_and_exit_code_2(space, arguments, message):
    told = refusal(*arguments, "-w", space)
    assert re.search(message, " ".join(told.split()))


def test_an_unknown_suite_is_named():
    assert "known: cpu" in refusal("problems", "nope")


def test_what_a_candidate_wrote_cannot_steer_the_terminal(tmp_path):
    import dataclasses

    node = synthetic.nodes(1, failing=0)[0]
    proposal = dataclasses.replace(node.proposal, rationale="\x1b[2J[bold]x[/bold]", source="\x1b]0;title\x07")
    bad = dataclasses.replace(node, result=dataclasses.replace(node.result, proposal=proposal, log="\x1b[31m"))
    synthetic.write(Workspace(tmp_path), "s", [bad])
    told = call("show", "s", 1, "-w", tmp_path).stdout + call("show", "s", "-w", tmp_path).stdout
    assert "\x1b" not in told
    assert "[bold]x[/bold]" in told


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_real_search_ends_in_a_table_a_kernel_and_a_report(tmp_path):
    done = call("run", "cpu/rms_norm", "--steps", 3, "--name", "real", "-w", tmp_path, "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)["studies"][0]
    assert told["nodes"] == 3
    assert told["ratios"]["eager"]["value"] > 0
    assert done.stderr.count("cpu/rms_norm: ") >= 4, "a line per candidate when there is no terminal"
    resumed = call("resume", "real", "--steps", 1, "-w", tmp_path)
    assert resumed.exit_code == 0, resumed.stderr
    assert "kernelevolve best real" in resumed.stdout
    assert call("best", "real", "-w", tmp_path, "-o", tmp_path / "kernel.py").exit_code == 0
    compile((tmp_path / "kernel.py").read_text(), "kernel.py", "exec")
    assert call("report", "real", "-w", tmp_path, "-o", tmp_path / "r.html").exit_code == 0


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_ctrl_c_ends_a_search_with_130_and_a_clean_study(tmp_path):
    arguments = [sys.executable, "-m", "kernelevolve", "run", "cpu/rms_norm", "--steps", "500",
                 "--name", "x", "-w", str(tmp_path)]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONUNBUFFERED": "1"})
    seen = []
    for line in process.stderr:
        seen.append(line)
        if ": 1/500" in line:
            break
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130, "".join(seen) + err
    assert "Traceback" not in err
    assert "cpu/rms_norm" in out, "the table is still shown"
    assert time.monotonic() - began < 120
    log = Workspace(tmp_path).study("x")
    assert log.ends[-1]["reason"] == "interrupted"
    assert log.lost == ()
