"""Real candidates: C++ compiled here, in a build folder as a candidate leaves it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelevolve.profiling import profile
from kernelevolve.records import Diagnosis, Problem, Proposal, Result, Status, TensorSpec, Timing

FLAGS = ["-O3", "-march=x86-64-v3", "-fopenmp", "-fPIC", "-shared"]
FACTS: dict[str, Any] = {
    "copy_gb_s": 20.0, "read_gb_s": 22.0, "cache_gb_s": 100.0, "fp32_gflops": 100.0, "threads": 2,
    "l2_bytes": 2**20, "l3_bytes": 2**25, "vector_lanes_fp32": 8,
}  # fmt: skip


def proposal(**changes: Any) -> Proposal:
    values = {"source": "", "language": "cpp", "operator": "hand", "own_kernels": 1}
    return Proposal(**{**values, **changes})


DEFAULT = proposal()


def result(ms: float = 1.0, *, proposal: Proposal | None = None, **changes: Any) -> Result:
    proposal = proposal or DEFAULT
    rounds = tuple(number // 4 for number in range(40))
    samples = tuple(ms * (1 + 0.001 * (number % 5)) for number in range(40))
    timings = (Timing("candidate", samples, rounds), Timing("eager", tuple(2 * s for s in samples), rounds))
    return Result(**{"proposal": proposal, "status": Status.CORRECT, "timings": timings, **changes})


def problem(bytes_min: int = 2_000_000, flops: int = 0) -> Problem:
    out = (TensorSpec((bytes_min // 8,), "float32"),)
    return Problem("test/op", "", "0", outputs=out, bytes_min=bytes_min, flops=flops)


Build = Callable[..., Path]
Look = Callable[..., tuple[dict[str, Any], Diagnosis]]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile a source as a candidate would; equal sources once per session."""
    made: dict[tuple[str, ...], Path] = {}

    def compile_source(source: str, *extra: str, remarks: bool = True) -> Path:
        key = (source, *extra, str(remarks))
        if key not in made:
            if shutil.which("g++") is None:
                pytest.skip("needs g++: apt install g++")
            folder = tmp_path_factory.mktemp("build")
            inner = folder / "0123abcd"
            inner.mkdir()
            (inner / "kernel.cpp").write_text("#include <cmath>\n#include <cstdint>\n" + source)
            notes = ["-fopt-info-vec-all=kernel.opt"] if remarks else []
            command = ["g++", *FLAGS, *extra, *notes, "-o", "kernel.so", "kernel.cpp"]
            subprocess.run(command, cwd=inner, check=True, timeout=60)
            made[key] = folder
        return made[key]

    return compile_source


@pytest.fixture
def look(build: Build) -> Look:
    """Profile of a source, as if it had been timed at `ms` for `bytes_min` bytes."""

    def profile_source(code: str, *extra: str, ms: float = 1.0, **changes: Any) -> tuple[dict[str, Any], Diagnosis]:
        made = result(ms, proposal=proposal(**changes))
        return profile(build(code, *extra), made, FACTS, problem())

    return profile_source
