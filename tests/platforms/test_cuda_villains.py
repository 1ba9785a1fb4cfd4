"""The bad candidates for CUDA, as far as they can be looked at without a device."""

import re
import shutil
import subprocess

import pytest

from kernelevolve import languages
from kernelevolve.evaluation import honesty
from kernelevolve.testing import villains

ALL = villains.load("cuda")
PROBLEMS = ("softmax_large", "matmul_large", "logsumexp_large")


def test_there_are_enough_of_them_for_problems_that_fill_a_device():
    assert len(ALL) >= 60
    for villain in ALL:
        compile(villain.source, villain.name, "exec")
        assert villain.problem in PROBLEMS
        assert villain.act
        assert "class ModelNew" in villain.source


@pytest.mark.parametrize("villain", ALL, ids=lambda v: v.name)
def test_what_must_be_found_in_a_source_is_and_nothing_else(villain):
    fatal = [str(f) for f in honesty.read(villain.source, villains.problem_source(villain.problem)) if f.fatal]
    assert bool(fatal) == (villain.stage == "source"), fatal
    if fatal:
        assert villain.runtime_stage in ("check", "time")


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_controls_are_in_triton_and_honest(problem):
    source = villains.good_source(problem)
    assert languages.detect(source) == "triton"
    assert not honesty.read(source)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_the_cuda_texts_compile_except_the_one_that_must_not(tmp_path):
    found = {v.name: m[1] for v in ALL if (m := re.search(r'^CUDA = r"""(.*?)"""', v.source, re.DOTALL | re.MULTILINE))}
    assert len(found) >= 5
    built = {}
    for name, text in found.items():
        (tmp_path / f"{name}.cu").write_text(text)
        command = ["nvcc", "-arch=sm_90", "-ptx", f"{name}.cu"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
        built[name] = done.returncode == 0
    assert [name for name, ok in built.items() if not ok] == ["cuda_does_not_compile"]
