"""What the files of bad candidates may say about themselves, and what is said when they say it wrongly."""

import re
import shutil
from pathlib import Path

import pytest

from kernelevolve.errors import SettingError, UnknownNameError
from kernelevolve.records import Status
from kernelevolve.testing import villains
from kernelevolve.testing.villains import header

EXAMPLES = Path(__file__).parents[2] / "docs/examples/villains"


def test_at_least_ninety_are_shipped_for_a_cpu_and_each_says_its_act_in_its_own_words():
    found = villains.load("cpu")
    assert len(found) >= 90
    acts = [v.act for v in found]
    assert all(len(act) > 4 for act in acts)
    assert sorted(a for a in set(acts) if acts.count(a) > 1) == []


def test_every_villain_names_where_it_is_caught_and_none_may_pass_for_correct():
    for villain in villains.load("cpu"):
        assert villain.stage in villains.STAGES, villain.name
        assert villain.expect is not Status.CORRECT, villain.name
        if villain.runtime is Status.CORRECT:
            assert "gains nothing" in villain.source, f"{villain.name} does not say why it is let through"


def test_every_problem_has_a_control_that_needs_no_compiler_and_the_shipped_ones_a_kernel():
    for name in {v.problem for v in villains.load("cpu")}:
        assert "class ModelNew(" in villains.control_source(name)
        assert "class Model(" not in villains.control_source(name)
        assert 'extern "C"' in villains.good_source(name)
        assert "class Model(" in villains.problem_source(name)


def test_a_villain_that_only_a_wall_stops_is_not_run_without_one(tmp_path):
    (tmp_path / "nosy.py").write_text('# expect: runtime_error at check\n# level: bubblewrap\n"""Looks around."""\n')
    (villain,) = villains.load(folder=tmp_path)
    assert [villain.runs_at(level) for level in villains.LEVELS] == [False, True, True]


def test_a_header_says_all_that_a_villain_needs():
    head = header.parse("# expect: dishonest at source\n# an ordinary remark\n# runtime: wrong_value at time\n"
                        "# settings: folder_bytes=1024 call_timeout_s=5\n# problem: matmul\n# level: container\n"
                        "import torch\n# settings: not a header any more\n", "v.py")
    assert (head.expect, head.stage) == (Status.DISHONEST, "source")
    assert (head.runtime, head.runtime_stage) == (Status.WRONG_VALUE, "time")
    assert head.settings == {"folder_bytes": 1024, "call_timeout_s": 5.0}
    assert (head.problem, head.level) == ("matmul", "container")


@pytest.mark.parametrize(("text", "status", "stage"), [
    ("# expect: timeout", Status.TIMEOUT, ""),
    ("# expect: timeout at check", Status.TIMEOUT, "check"),
    ("# expect: dishonest at source", Status.DISHONEST, ""),
])
def test_without_a_line_of_its_own_the_verdict_on_an_unread_source_is_the_same(text, status, stage):
    head = header.parse(text + "\n", "v.py")
    assert (head.runtime, head.runtime_stage) == (status, stage)
    assert (head.problem, head.level, head.settings) == ("softmax", "process", {})


@pytest.mark.parametrize(("text", "line", "expected"), [
    ("import torch\n", 1, "comes first"),
    ('"""A docstring."""\n# expect: timeout\n', 1, "comes first"),
    ("# expect: broken at check\n", 1, "a status, one of correct,"),
    ("# expect: timeout check\n", 1, "STATUS at STAGE"),
    ("# expect:\n", 1, "STATUS at STAGE"),
    ("# expect: timeout at lunch\n", 1, "a stage, one of source,"),
    ("# problem: matmul\n# expect: timeout\n", 1, "on the first line"),
    ("# expect: timeout\n# expect: crashed\n", 2, "on the first line"),
    ("# expect: timeout\n# level: vault\n", 2, "one of process, bubblewrap, container"),
    ("# expect: timeout\n#\n# problem: ../secret\n", 3, "a file's name in problems/"),
    ("# expect: timeout\n# setings: rounds=6\n", 2, "one of expect, problem,"),
    ("# expect: timeout\n# settings:\n", 2, "at least one NAME=VALUE"),
    ("# expect: timeout\n# settings: rounds\n", 2, "NAME=VALUE"),
    ("# expect: timeout\n# settings: isolation=process\n", 2, "NAME=VALUE"),
    ("# expect: timeout\n# settings: rounds=many\n", 2, "a number of type int"),
    ("# expect: timeout\n# level: process\n# level: process\n", 3, "each key once"),
    ("# expect: dishonest at source\n# runtime: dishonest at source\n", 2, "a stage that runs"),
])
def test_a_malformed_header_names_file_line_expectation_and_an_example(tmp_path, text, line, expected):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(SettingError) as caught:
        villains.load(folder=tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path}, line {line}: expected ")
    assert expected in message
    assert re.search(r"Example: `# \w+: \S.*`$", message)


def test_a_folder_of_the_users_brings_its_own_villains_and_problem():
    (villain,) = villains.load(folder=EXAMPLES)
    assert (villain.name, villain.problem, villain.expect) == ("approximates_gelu", "gelu", Status.WRONG_VALUE)
    assert "gelu" in villains.problem_source(villain.problem, EXAMPLES)
    assert villains.good_source(villain.problem, EXAMPLES) == villains.control_source(villain.problem, EXAMPLES)
    assert "class ModelNew(" in villains.good_source(villain.problem, EXAMPLES)


def test_a_problem_of_the_users_goes_before_a_shipped_one_of_the_same_name(tmp_path):
    (tmp_path / "problems").mkdir()
    shutil.copy(EXAMPLES / "problems/gelu.py", tmp_path / "problems/softmax.py")
    assert "gelu" in villains.problem_source("softmax", tmp_path)
    assert 'extern "C"' not in villains.good_source("softmax", tmp_path), "the shipped kernel computes another function"
    assert villains.problem_source("matmul", tmp_path) == villains.problem_source("matmul")
    (tmp_path / "controls").mkdir()
    (tmp_path / "controls/softmax.py").write_text("# mine\n")
    assert villains.good_source("softmax", tmp_path) == "# mine\n"


def test_an_unknown_problem_is_answered_with_those_that_exist():
    with pytest.raises(UnknownNameError, match=r"'nothing'; known: .*matmul, .*softmax"):
        villains.problem_source("nothing")


@pytest.mark.parametrize("make", [lambda p: p / "absent", lambda p: p])
def test_a_folder_without_villains_is_an_error_that_says_what_belongs_there(tmp_path, make):
    with pytest.raises(SettingError, match=r"expected .* villain"):
        villains.load(folder=make(tmp_path))
