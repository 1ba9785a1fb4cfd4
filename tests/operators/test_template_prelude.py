"""Accuracy of the prelude's functions over the whole range of float, sampled evenly over bit patterns."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from kernelevolve.operators.template.cpp.prelude import PARTS, prelude

STRIDE = 39983
"""Every so many bit patterns; a prime, so that all exponents and many mantissas are met."""
LIMITS = {
    "exp": 1.0, "exp2": 1.0, "expm1": 1.5, "log": 1.0, "log2": 1.0, "log10": 1.0, "log1p": 1.5, "tanh": 1.4, "erf": 1.2,
    "sin": 1.6, "cos": 1.6,
}  # fmt: skip
"""Largest error in units in the last place."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, str]:
    folder = tmp_path_factory.mktemp("prelude")
    loop = 'extern "C" void f_{0}(const float* __restrict x, float* __restrict y, int64_t n) {{\n#pragma omp simd\n'
    loop += "for (int64_t i = 0; i < n; i++) y[i] = k_{0}(x[i]);\n}}\n"
    code = "".join(loop.format(name) for name in (*LIMITS, "sigmoid"))
    (folder / "f.cpp").write_text(prelude(code) + code)
    flags = [
        "-O3",
        "-march=native",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fopenmp",
        "-shared",
        "-fPIC",
        "-fopt-info-vec-optimized",
    ]
    done = subprocess.run(
        ["g++", *flags, "-o", "f.so", "f.cpp"], cwd=folder, check=True, capture_output=True, text=True
    )
    return ctypes.CDLL(str(folder / "f.so")), done.stderr


def run(library: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    y = np.empty_like(x)
    library[f"f_{name}"](ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(len(x)))
    return y


def all_kinds_of_floats() -> np.ndarray:
    return np.arange(0, 2**32, STRIDE, dtype=np.uint64).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("name", sorted(LIMITS))
def test_errors_stay_within_a_unit_or_two_in_the_last_place(built: tuple[ctypes.CDLL, str], name: str) -> None:
    x = all_kinds_of_floats()
    if name in ("sin", "cos"):
        x = np.where(np.abs(x) < 1e15, x, np.float32(0.5)).astype(np.float32)
    got = torch.from_numpy(run(built[0], name, x)).double()
    want = getattr(torch, name)(torch.from_numpy(x).double())
    rounded = want.float()
    assert torch.equal(torch.isnan(got), torch.isnan(rounded))
    assert torch.equal(torch.isinf(got), torch.isinf(rounded))
    finite = torch.isfinite(rounded)
    unit = torch.from_numpy(np.spacing(np.abs(rounded[finite].numpy()))).double()
    assert ((got[finite] - want[finite]).abs() / unit).max() <= LIMITS[name]


def test_sigmoid_is_as_torchs(built: tuple[ctypes.CDLL, str]) -> None:
    x = all_kinds_of_floats()
    got, want = torch.from_numpy(run(built[0], "sigmoid", x)), torch.sigmoid(torch.from_numpy(x))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-37, equal_nan=True)


def test_every_function_is_vectorised(built: tuple[ctypes.CDLL, str]) -> None:
    vectorised = {line.split(":")[1] for line in built[1].splitlines() if "loop vectorized" in line}
    assert len(vectorised) >= len(LIMITS) + 1


def test_only_used_parts_are_written() -> None:
    text = prelude("y = k_exp(x);")
    assert "k_exp(float" in text
    assert "k_from_bits" in text
    assert "k_erf" not in text
    assert "k_log" not in text


def test_all_parts_compile_together(tmp_path: Path) -> None:
    (tmp_path / "all.cpp").write_text(prelude("", also=PARTS))
    subprocess.run(
        ["g++", "-Wall", "-Werror", "-Wno-unused-function", "-fsyntax-only", "-march=native", "-std=c++17", "all.cpp"],
        cwd=tmp_path,
        check=True,
    )
