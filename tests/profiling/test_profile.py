"""The rules of the diagnosis, the roofline, and what happens when evidence is missing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelevolve.errors import UnknownNameError
from kernelevolve.profiling import PROFILERS, get, profile
from kernelevolve.profiling.diagnosis import RULES
from kernelevolve.profiling.library import operator_calls
from kernelevolve.profiling.roofline import locate, spread
from kernelevolve.records import LeafError, Status, Timing
from tests.profiling.conftest import FACTS, Build, Look, problem, proposal, result
from tests.profiling.test_code import SAXPY, SERIAL

MODULE = """
import ctypes, torch
import torch.nn as nn
import torch.nn.functional as F
lib = ctypes.CDLL("kernel.so")
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.kernel = lib.kernel
        self.scale = torch.ones(3).exp()
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        self.kernel(x.data_ptr(), out.data_ptr(), x.numel())
        {extra}
        return out
"""


def test_bandwidth_is_the_least_traffic_over_the_median_time() -> None:
    part = locate(result(2.0), FACTS, problem(bytes_min=40_000_000))
    assert part["achieved_gb_s"] == pytest.approx(20, rel=0.01)
    assert part["peak_gb_s"] == 22
    assert part["memory_share"] == pytest.approx(20 / 22, rel=0.01)
    assert part["bound_share"] == part["memory_share"]


def test_the_evaluators_bound_wins_over_the_rooflines_own() -> None:
    part = locate(result(2.0, bound_ms=0.5), FACTS, problem())
    assert part["bound_ms"] == 0.5
    assert part["bound_share"] == pytest.approx(0.25, rel=0.01)


def test_pointwise_work_counts_when_the_genome_states_it() -> None:
    made = result(1.0, proposal=proposal(genome={"pointwise_flops": 3_000_000}))
    part = locate(made, FACTS, problem(bytes_min=1_000_000, flops=1_000_000))
    assert part["intensity"] == 4
    assert part["achieved_gflops"] == pytest.approx(4, rel=0.01)


def test_data_that_comes_faster_than_memory_came_from_cache() -> None:
    part = locate(result(0.05), FACTS, problem(bytes_min=2_000_000))
    assert part["in_cache"]
    assert part["peak_gb_s"] == 200  # two cores' caches


@given(
    st.dictionaries(
        st.sampled_from([*FACTS, "fp64_gflops"]), st.none() | st.text() | st.integers() | st.floats(), max_size=9
    ),
    st.floats(1e-6, 1e6),
    st.integers(0, 10**12),
    st.integers(0, 10**15),
)
def test_any_facts_give_numbers_or_none(facts: dict[str, object], ms: float, bytes_min: int, flops: int) -> None:
    parts, diagnosis = profile(Path("/nowhere"), result(ms), facts, problem(bytes_min, flops))
    json.dumps(parts)
    assert diagnosis.bottleneck in {"memory", "compute", "overhead", "imbalance", "unknown"}
    assert all(isinstance(value, float) for value in diagnosis.numbers.values())


def test_a_kernel_at_the_memorys_pace_is_memory_bound_whatever_its_code(look: Look) -> None:
    parts, diagnosis = look(SAXPY, ms=0.1)  # 2 MB in 0.1 ms: 20 of 22 GB/s
    assert diagnosis.bottleneck == "memory"
    assert diagnosis.causes[0] == "memory_bound"
    assert "GB/s" in diagnosis.summary
    assert parts["roofline"]["memory_share"] > 0.9


def test_a_product_at_half_the_flop_peak_is_compute_bound(build: Build) -> None:
    _, diagnosis = profile(build(SAXPY), result(1.0), FACTS, problem(bytes_min=100_000, flops=70_000_000))
    assert diagnosis.bottleneck == "compute"
    assert diagnosis.numbers["compute_share"] == pytest.approx(0.7, rel=0.01)


def test_a_kernel_as_short_as_its_call_is_overhead_bound(look: Look) -> None:
    made = result(0.005)
    _, diagnosis = profile(Path("/nowhere"), made, FACTS, problem(bytes_min=1000))
    assert diagnosis.bottleneck == "overhead"
    assert diagnosis.causes[0] == "launch_overhead"


def test_a_short_serial_kernel_is_not_told_to_use_threads(look: Look) -> None:
    assert "single_thread" not in look(SERIAL, ms=0.03)[1].causes


def test_one_core_is_no_reason_to_call_a_kernel_single_threaded(build: Build) -> None:
    _, diagnosis = profile(build(SERIAL), result(), {**FACTS, "threads": 1}, problem())
    assert "single_thread" not in diagnosis.causes


def test_many_kernels_and_library_calls_are_named(look: Look) -> None:
    module = MODULE.replace("{extra}", "out = F.relu(self.linear(out)) @ x")
    _, diagnosis = look(SAXPY, own_kernels=5, source=module)
    assert {"many_kernels", "library_op"} <= set(diagnosis.causes)


def test_allocation_views_and_own_kernels_are_no_library_calls() -> None:
    assert operator_calls(MODULE.replace("{extra}", "out = out.view(-1).reshape(3)")) == {}


def test_operators_modules_methods_and_products_are_library_calls() -> None:
    module = MODULE.replace("{extra}", "out = F.relu(torch.exp(out)) @ self.linear(x).sum(-1)")
    assert set(operator_calls(module) or ()) == {
        "torch.nn.functional.relu", "torch.exp", "matmul", "self.linear", "Tensor.sum",
    }  # fmt: skip
    assert operator_calls("def (") is None


def _timings(candidate_round: float, baseline_round: float) -> tuple[Timing, ...]:
    rounds = tuple(number // 5 for number in range(60))

    def samples(swing: float) -> tuple[float, ...]:
        return tuple(1.0 + swing * (number % 2) for number in rounds)

    return Timing("candidate", samples(candidate_round), rounds), Timing("eager", samples(baseline_round), rounds)


def test_unsteady_rounds_are_imbalance_only_beside_a_steady_baseline(build: Build) -> None:
    folder = build(SAXPY)
    uneven = profile(folder, result(timings=_timings(1.0, 0.02)), FACTS, problem())[1]
    noisy = profile(folder, result(timings=_timings(1.0, 1.0)), FACTS, problem())[1]
    assert uneven.bottleneck == "imbalance"
    assert "imbalance" not in noisy.causes


def test_a_time_with_one_thread_shows_poor_efficiency(build: Build) -> None:
    folder = build(SAXPY)
    assert profile(folder, result(1.0), FACTS, problem(), one_thread_ms=1.1)[1].bottleneck != "imbalance"
    diagnosis = profile(folder, result(1.0), FACTS, problem(), one_thread_ms=0.8)[1]
    assert diagnosis.bottleneck == "imbalance"
    assert "40%" in diagnosis.summary


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.CORRECT])
def test_a_candidate_that_is_not_correct_is_diagnosed_by_its_status(status: Status, tmp_path: Path) -> None:
    errors = (LeafError(0, "3 normal", 0.5, 1e-7, 1e-5, passed=False),)
    _, diagnosis = profile(tmp_path, result(status=status, detail="row 3 differs", errors=errors), FACTS, problem())
    assert diagnosis.bottleneck == "incorrect"
    assert diagnosis.causes == (status.value,)
    assert "row 3 differs" in diagnosis.summary
    assert "0.5" in diagnosis.summary


def test_a_missing_build_folder_is_said_not_raised(tmp_path: Path) -> None:
    parts, diagnosis = profile(tmp_path / "gone", result(timings=()), {}, problem(bytes_min=0))
    assert diagnosis.bottleneck == "unknown"
    assert "kernel.so" in parts["static"]["missing"]
    assert "kernel.cpp" in parts["remarks"]["missing"]
    assert parts["roofline"] == {"missing": "not timed"}


def test_far_from_every_bound_without_a_cause_in_the_code_is_unknown(look: Look) -> None:
    assert look(SAXPY, ms=5.0)[1].bottleneck == "unknown"


def test_garbage_in_the_build_folder_is_said_not_raised(tmp_path: Path) -> None:
    (tmp_path / "kernel.so").write_bytes(os.urandom(5000))
    (tmp_path / "kernel.cpp").write_bytes(os.urandom(5000))
    (tmp_path / "kernel.opt").write_bytes(os.urandom(5000))
    parts, diagnosis = profile(tmp_path, result(), FACTS, problem())
    assert "objdump cannot read" in parts["static"]["missing"]
    assert parts["remarks"]["loops"] == []
    assert diagnosis.bottleneck in {"memory", "unknown"}


@pytest.mark.timeout(20)
def test_a_named_pipe_in_the_build_folder_does_not_block(tmp_path: Path) -> None:
    for name in ("kernel.so", "kernel.cpp", "kernel.opt"):
        os.mkfifo(tmp_path / name)
    parts, _ = profile(tmp_path, result(), FACTS, problem())
    assert "missing" in parts["static"]
    assert "missing" in parts["remarks"]


def test_a_missing_tool_is_named_with_its_package(
    build: Build, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = SAXPY + '// another text, so that nothing comes from the cache\nextern "C" void unused() {}\n'
    folder = build(source, remarks=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    parts, diagnosis = profile(folder, result(ms=5.0), FACTS, problem())
    assert "apt install binutils" in parts["static"]["missing"]
    assert "apt install g++" in parts["remarks"]["missing"]
    assert diagnosis.bottleneck == "unknown"
    assert "binutils" in diagnosis.summary


def test_a_profile_is_plain_json_and_repeats_itself(look: Look) -> None:
    parts, first = look(SAXPY)
    json.dumps(parts, allow_nan=False)
    assert look(SAXPY)[1] == first


def test_causes_come_most_likely_first(look: Look) -> None:
    _, diagnosis = look(SERIAL, "-fno-tree-vectorize", own_kernels=4)
    scores = [diagnosis.numbers[f"score.{tag}"] for tag in diagnosis.causes]
    assert len(scores) > 2
    assert scores == sorted(scores, reverse=True)
    assert set(diagnosis.causes) <= {rule.tag for rule in RULES}


def test_few_samples_have_no_spread() -> None:
    assert spread((1.0, 2.0)) is None
    assert spread((1.0, 1.0, 1.0, 1.0)) == 0


def test_an_unknown_part_is_refused_with_the_known_ones() -> None:
    assert get("static") is PROFILERS["static"]
    with pytest.raises(UnknownNameError, match="roofline"):
        get("ncu")
