"""What the profile says of machine code that was really compiled."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelevolve.profiling import disassembly, profile, static
from kernelevolve.profiling.remarks import FLAGS, explain, flags
from tests.profiling.conftest import FACTS, Build, Look, problem, proposal, result

SAXPY = """
extern "C" void saxpy(const float* __restrict x, float* __restrict y, float a, int64_t n) {
  #pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) y[i] += a * x[i];
}
"""
SERIAL = """
extern "C" void scale(const float* __restrict x, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = 2.0f * x[i];
}
"""
SCAN = """
extern "C" void scan(float* x, int64_t n) {
  for (int64_t i = 1; i < n; ++i) x[i] = x[i - 1] * 0.5f + x[i];
}
"""
EXP = """
extern "C" void expo(const float* __restrict x, float* __restrict y, int64_t n) {
  #pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) y[i] = expf(x[i]);
}
"""
GATHER = """
extern "C" void take(const float* __restrict x, const int32_t* __restrict k, float* __restrict y, int64_t n) {
  #pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[k[i]];
}
"""
DIVIDE = """
extern "C" void divide(const float* __restrict x, const float* __restrict y, float* __restrict z, int64_t n) {
  #pragma omp parallel for simd
  for (int64_t i = 0; i < n; ++i) z[i] = x[i] / y[i];
}
"""
SUM = """
extern "C" void total(const float* __restrict x, float* __restrict y, int64_t n) {
  float s = 0;
  for (int64_t i = 0; i < n; ++i) s += x[i];
  *y = s;
}
"""
INTRINSICS = """
#include <immintrin.h>
static inline __m256 twice(__m256 v) { return _mm256_add_ps(v, v); }
extern "C" void doubled(const float* x, float* y, int64_t n) {
  #pragma omp parallel for
  for (int64_t i = 0; i < n; i += 8) _mm256_storeu_ps(y + i, twice(_mm256_loadu_ps(x + i)));
}
"""


def test_a_simd_loop_is_seen_as_vectorised_parallel_and_fused(look: Look) -> None:
    parts, diagnosis = look(SAXPY)
    function = parts["static"]["functions"]["saxpy"]
    assert function["parallel"]
    assert function["mix"]["fma"] > 0
    assert function["widest_bits"] == 256
    assert max(loop["fp_bits"] for loop in function["loops"]) == 256
    assert [(row["line"], row["bits"]) for row in parts["remarks"]["loops"]] == [(6, 256)]
    assert "not_vectorised" not in diagnosis.causes
    assert "single_thread" not in diagnosis.causes


def test_an_openmp_region_belongs_to_the_function_it_was_cut_from(look: Look) -> None:
    parts, _ = look(SAXPY)
    assert set(parts["static"]["functions"]) == {"saxpy"}


def test_a_kernel_without_openmp_is_single_threaded(look: Look) -> None:
    parts, diagnosis = look(SERIAL)
    assert not parts["static"]["functions"]["scale"]["parallel"]
    assert diagnosis.causes[0] == "single_thread"
    assert "2 threads" in diagnosis.summary


def test_a_recurrence_is_not_vectorised_and_is_one_chain(look: Look) -> None:
    parts, diagnosis = look(SCAN)
    assert parts["static"]["functions"]["scan"]["vector_fp_share"] == 0
    assert [loop["recurrences"] for loop in parts["static"]["functions"]["scan"]["loops"]] == [1]
    assert parts["remarks"]["missed"] == 1
    assert parts["remarks"]["loops"][0]["reason"]
    assert {"not_vectorised", "reduction_chain"} <= set(diagnosis.causes)
    assert diagnosis.bottleneck == "compute"


def test_an_ordered_sum_is_one_chain_though_the_compiler_calls_it_vectorised(look: Look) -> None:
    parts, diagnosis = look(SUM)
    assert parts["remarks"]["vectorised"] == 1
    assert {"not_vectorised", "reduction_chain"} <= set(diagnosis.causes)


def test_a_reassociated_sum_with_many_accumulators_is_no_chain(look: Look) -> None:
    # Eight accumulators written out: each is a chain, all run side by side.
    names = "abcdefgh"
    declared = ", ".join(f"{name} = 0" for name in names)
    added = " ".join(f"{name} += x[i + {k}];" for k, name in enumerate(names))
    source = f"""
extern "C" void total(const float* __restrict x, float* __restrict y, int64_t n) {{
  float {declared};
  #pragma GCC novector
  for (int64_t i = 0; i < n; i += 9) {{ {added} }}
  *y = {" + ".join(names)};
}}
"""
    _, diagnosis = look(source, "-fno-tree-vectorize")
    assert "reduction_chain" not in diagnosis.causes
    assert "not_vectorised" in diagnosis.causes


RMS = """
extern "C" void rms(const float* __restrict x, float* __restrict y, int64_t n) {
  float s = 0;
  for (int64_t i = 0; i < n; ++i) s += x[i] * x[i];
  float r = 1 / sqrtf(s);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * r;
}
"""


def test_an_ordered_sum_is_a_scalar_chain_beside_a_vectorised_loop_too(look: Look) -> None:
    _, diagnosis = look(RMS)
    assert "reduction_chain" in diagnosis.causes
    assert (diagnosis.numbers["recurrences"], diagnosis.numbers["chain_bits"]) == (1, 0)


def test_a_reassociated_sum_is_a_chain_of_vectors(look: Look) -> None:
    _, diagnosis = look(RMS, "-ffast-math")
    assert (diagnosis.numbers["recurrences"], diagnosis.numbers["chain_bits"]) == (1, 256)
    assert "not_vectorised" not in diagnosis.causes


def test_the_remainder_of_an_unrolled_vector_sum_is_not_its_chain(look: Look) -> None:
    names = "abcdefgh"
    source = f"""
#include <immintrin.h>
extern "C" void total(const float* x, float* y, int64_t n) {{
  __m256 {", ".join(f"{name} = _mm256_setzero_ps()" for name in names)};
  int64_t i = 0;
  for (; i + 64 <= n; i += 64) {{
    {" ".join(f"{name} = _mm256_add_ps({name}, _mm256_loadu_ps(x + i + {8 * k}));" for k, name in enumerate(names))}
  }}
  {" ".join(f"a = _mm256_add_ps(a, {name});" for name in names[1:])}
  float s = a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
  for (; i < n; ++i) s += x[i];
  *y = s;
}}
"""
    _, diagnosis = look(source, "-fno-tree-vectorize")
    assert "reduction_chain" not in diagnosis.causes
    assert diagnosis.numbers["recurrences"] == 8


def test_scalar_libm_in_a_loop_is_named(look: Look) -> None:
    parts, diagnosis = look(EXP)
    assert parts["static"]["functions"]["expo"]["math_calls"] == {"expf": 1}
    assert "expf" in parts["remarks"]["loops"][0]["reason"]
    assert diagnosis.causes[0] == "math_calls"
    assert "expf" in diagnosis.summary


def test_vector_libm_is_not_blamed_for_its_scalar_remainder(look: Look) -> None:
    parts, diagnosis = look(EXP, "-ffast-math")
    calls = parts["static"]["functions"]["expo"]["math_calls"]
    if not any(name.startswith("_ZGV") for name in calls):
        pytest.skip("this C library has no vector expf")
    assert parts["static"]["mix"]["call_libm"] > 0
    assert "math_calls" not in diagnosis.causes


def test_a_vector_gather_is_seen(look: Look) -> None:
    parts, diagnosis = look(GATHER, "-mtune=skylake")  # the generic tuning avoids gather instructions
    assert parts["static"]["mix"]["gather"] > 0
    assert diagnosis.causes[0] == "gather"


def test_an_indexed_load_is_a_gather_without_gather_instructions_too(look: Look) -> None:
    for extra in (["-fno-tree-vectorize", "-fno-openmp"], []):
        parts, diagnosis = look(GATHER, *extra)
        assert parts["static"]["mix"]["gather"] == 0
        assert "gather" in diagnosis.causes


def test_division_is_seen_in_the_loop(look: Look) -> None:
    parts, diagnosis = look(DIVIDE)
    assert parts["static"]["mix"]["div_sqrt"] > 0
    assert "division" in diagnosis.causes
    assert "division" not in look(SAXPY)[1].causes


def test_half_wide_vectors_are_named_with_both_widths(look: Look) -> None:
    _, diagnosis = look(SAXPY, "-mprefer-vector-width=128", ms=0.25)
    assert "narrow_vectors" in diagnosis.causes
    assert (diagnosis.numbers["code_bits"], diagnosis.numbers["machine_bits"]) == (128, 256)


def test_loops_written_in_intrinsics_are_not_called_missed(look: Look) -> None:
    parts, diagnosis = look(INTRINSICS)
    assert parts["remarks"]["missed"] == 0
    assert "not_vectorised" not in diagnosis.causes


def test_the_mix_sums_to_the_total_for_compiled_code(look: Look) -> None:
    for source in (SAXPY, SCAN, EXP, GATHER, DIVIDE, SUM, INTRINSICS):
        part = look(source)[0]["static"]
        assert part["instructions"] == sum(part["mix"].values()) > 0
        assert part["instructions"] == sum(f["instructions"] for f in part["functions"].values())
        for function in part["functions"].values():
            fp = sum(function["mix"][name] for name in static.FLOATING)
            assert sum(function["fp_by_width"].values()) == fp


WORDS = (
    "vaddps vaddss vfmadd231ps vdivps vsqrtsd vmovups mov lea vpgatherdd jne jmp call ret nop push pop idiv vpaddd "
    "vzeroupper kmovw tdpbf16ps vcmpltps data16 (bad) rep lock"
)
OPCODES = st.sampled_from(WORDS.split())
OPERANDS = st.sampled_from(["", "zmm0,zmm1,zmm2", "xmm0,DWORD PTR [rax+rcx*4]", "YMMWORD PTR [rsp+0x20],ymm1",
                            "10 <f>", "1000 <expf@plt>", "rax,QWORD PTR [rbx]", "ebx", "[[", "],,(", "0x"])  # fmt: skip
LINES = st.tuples(OPCODES | st.text("abv {}()", min_size=1, max_size=8), OPERANDS)


@given(st.lists(LINES, max_size=40), st.integers(0, 30))
def test_any_instruction_has_exactly_one_class(lines: list[tuple[str, str]], head: int) -> None:
    text = ["0000000000000000 <f._omp_fn.0>:"]
    text += [f"  {at:x}:\t90 \t{opcode} {rest}" for at, (opcode, rest) in enumerate(lines)]
    text += [f"  {len(lines):x}:\t90 \tjne {head:x} <f>"]
    functions = disassembly.parse("\n".join(text))
    part = static.summarise(functions)
    assert part["instructions"] == sum(part["mix"].values()) == sum(len(f.instructions) for f in functions)
    assert all(loop.body[-1].address >= loop.body[0].address for f in functions for loop in f.loops)


@given(st.text(max_size=400))
def test_text_that_is_no_disassembly_has_no_functions(text: str) -> None:
    assert static.summarise(disassembly.parse(text))["instructions"] == 0


@given(st.text(st.sampled_from("for(while){};[]\"'/*\n do#pragma x_mm\\"), max_size=200), st.integers(-2, 30))
def test_remarks_survive_any_source(source: str, line: int) -> None:
    text = f"kernel.cpp:{line}:3: missed: couldn't vectorize loop\nkernel.cpp:1:1: missed: not vectorized: why\n"
    text += f"kernel.cpp:{line + 1}:1: optimized: loop vectorized using 32 byte vectors\n"
    part = explain(text, source)
    assert part["missed"] + part["vectorised"] <= len(part["loops"]) + part["loops_left_out"]


def test_a_backward_jump_out_of_a_cold_block_is_no_loop() -> None:
    text = """0000000000000000 <f>:
   0:\t74 04 \tje 6 <f+0x6>
   2:\t90 \tnop
   3:\tc3 \tret
   6:\t31 c0 \txor eax,eax
   8:\teb f8 \tjmp 2 <f+0x2>
"""
    assert disassembly.parse(text)[0].loops == ()


def test_two_loops_on_one_line_are_told_apart() -> None:
    source = "void f() { for (int i = 0; i < n; ++i) a[i] = 0; for (int j = 0; j < n; ++j) b[j] = expf(b[j]); }"
    text = f"kernel.cpp:1:{source.index('i < n')}: optimized: loop vectorized using 32 byte vectors\n"
    text += f"kernel.cpp:1:{source.index('expf')}: missed: couldn't vectorize loop\n"
    part = explain(text, source)
    assert {(row["text"], row["bits"]) for row in part["loops"]} == {
        ("for (int i = 0; i < n; ++i)", 256),
        ("for (int j = 0; j < n; ++j)", 0),
    }


def test_without_stored_remarks_the_source_is_compiled_once_more(
    build: Build, look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:

    made = result(proposal=proposal(source='FLAGS = ["-O3", "-march=x86-64-v3", "-fopenmp"]'))
    parts, _ = profile(build(SAXPY, remarks=False), made, FACTS, problem())
    assert parts["remarks"]["from"] == "recompiled"
    assert parts["remarks"]["loops"] == look(SAXPY)[0]["remarks"]["loops"]
    monkeypatch.setenv("PATH", str(tmp_path))  # no compiler, no objdump: equal code needs neither again
    again, _ = profile(build(SAXPY, remarks=False), made, FACTS, problem())
    assert (again["remarks"], again["static"]) == (parts["remarks"], parts["static"])


def test_only_harmless_flags_are_taken_from_a_candidate() -> None:
    module = 'X = ["-O2", "-fplugin=evil.so", "-wrapper", "sh,-c", "-march=native", "-specs=x", "-fdump-rtl-all"]'
    assert flags(module) == ("-O2", "-march=native")
    assert flags("not python (") == FLAGS
    assert flags("X = 1") == FLAGS


def test_a_typical_profile_costs_far_less_than_the_limit(look: Look) -> None:
    parts, _ = look(SAXPY + SCAN + EXP + DIVIDE)
    assert parts["profile_s"] < 0.7
