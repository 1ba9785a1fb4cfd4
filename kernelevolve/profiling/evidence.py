"""The numbers that a diagnosis rests on, gathered from the parts of a profile. None means: not known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kernelevolve.profiling.base import Subject

CALL_OVERHEAD_US = 2.3
"""One ctypes call with three data pointers, as measured once; a machine's own figure is facts["call_overhead_us"]."""
ORDERED_SUM = 4
"""Dependent operations per chain and pass from which a scalar chain is a sum kept in order: a vector's fewest lanes."""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What is known of one candidate. Loop figures sum over innermost loops of the machine code."""

    median_ms: float | None = None
    memory_share: float | None = None
    """Time that the least traffic needs at the peak, over the time taken."""
    compute_share: float | None = None
    achieved_gb_s: float | None = None
    peak_gb_s: float | None = None
    achieved_gflops: float | None = None
    peak_gflops: float | None = None
    bytes_min: float = 0.0
    in_cache: bool = False
    round_spread: float | None = None
    baseline_round_spread: float | None = None
    parallel_efficiency: float | None = None
    """Time with one thread over (time taken times threads)."""

    kernels: int = 0
    """Own kernels that one call launches."""
    call_overhead_us: float = CALL_OVERHEAD_US
    threads: int | None = None
    machine_bits: int | None = None

    seen_code: bool = False
    """Whether the machine code could be read."""
    parallel: bool = False
    code_bits: int = 0
    """Widest packed work in a loop."""
    scalar_fp_loops: int = 0
    """Loops with floating-point work, all of it scalar, in functions without any packed floating-point loop."""
    scalar_functions: tuple[str, ...] = ()
    recurrences: int | None = None
    """Fewest independent chains among main loops that carry one; None when none does."""
    chain_bits: int = 0
    """Vector width of that chain; 0 for scalar arithmetic."""
    scalar_math: tuple[str, ...] = ()
    """Math functions called one element at a time in a loop."""
    vector_math: bool = False
    divisions: int = 0
    integer_divisions: int = 0
    gathers: int = 0
    spills: int = 0
    loop_instructions: int = 0

    missed_loops: tuple[str, ...] = ()
    """Lines and reasons, as the compiler gave them."""
    loops_remarked: int = 0
    library: tuple[str, ...] = ()

    @property
    def overhead_share(self) -> float | None:
        """Share of the time that calling the kernels takes."""
        if not self.median_ms or not self.kernels:
            return None
        return min(1.0, self.kernels * self.call_overhead_us / 1000 / self.median_ms)

    @property
    def room(self) -> float:
        """Share of the time that neither the memory nor the arithmetic peak explains; 1 when nothing is known."""
        return 1.0 - min(1.0, max(self.memory_share or 0.0, self.compute_share or 0.0))


def gather(parts: Mapping[str, Any], subject: Subject, one_thread_ms: float | None) -> Evidence:
    """Evidence from the parts of a profile; parts that are missing leave their fields unknown."""
    roofline, static, remarks, library = (
        part if isinstance(part := parts.get(name), Mapping) and "missing" not in part else {}
        for name in ("roofline", "static", "remarks", "library")
    )
    median_ms = roofline.get("median_ms")
    threads = _positive(subject.facts.get("threads"))
    lanes = _positive(subject.facts.get("vector_lanes_fp32"))
    overhead = subject.facts.get("call_overhead_us")
    efficiency = one_thread_ms / (median_ms * threads) if one_thread_ms and median_ms and threads else None
    missed = [row for row in remarks.get("loops", ()) if row["innermost"] and not row["explicit"] and not row["bits"]]
    return Evidence(
        **{
            key: roofline[key]
            for key in ("median_ms", "memory_share", "compute_share", "achieved_gb_s", "peak_gb_s", "achieved_gflops",
                        "peak_gflops", "bytes_min", "in_cache", "round_spread", "baseline_round_spread")
            if roofline.get(key) is not None
        },
        parallel_efficiency=efficiency,
        kernels=subject.result.proposal.own_kernels,
        call_overhead_us=float(overhead) if isinstance(overhead, (int, float)) else CALL_OVERHEAD_US,
        threads=threads,
        machine_bits=32 * lanes if lanes else None,
        **_code(static),
        missed_loops=tuple(f"line {row['line']}: {row['reason'] or 'no reason given'}" for row in missed),
        loops_remarked=remarks.get("vectorised", 0) + len(missed),
        library=tuple(library.get("operators", {})),
    )  # fmt: skip


def _code(static: Mapping[str, Any]) -> dict[str, Any]:
    functions: Mapping[str, Any] = static.get("functions", {})
    loops = [loop for function in functions.values() for loop in function["loops"]]
    scalar = {
        name: sum(loop["fp"] > 0 for loop in function["loops"])
        for name, function in functions.items()
        if not any(loop["fp_bits"] for loop in function["loops"])
    }
    scalar = {name: count for name, count in scalar.items() if count}
    chains = [
        (loop["recurrences"], loop["chain_bits"])
        for function in functions.values()
        for loop in function["loops"]
        # A vectorised loop's scalar remainder carries a chain too, one element a pass: only the widest loops count,
        # and sums kept in order, which the compiler unrolls by the vector's lanes.
        if loop["recurrences"]
        and (
            loop["fp_bits"] == max(other["fp_bits"] for other in function["loops"])
            or loop["chain_length"] >= ORDERED_SUM * loop["recurrences"]
        )
    ]
    recurrences, chain_bits = min(chains, default=(None, 0))
    scalar_math = {call for function in functions.values() for call in _scalar_math(function)}
    return {
        "seen_code": bool(functions),
        "parallel": any(function["parallel"] for function in functions.values()),
        "code_bits": max((loop["bits"] for loop in loops), default=0),
        "scalar_fp_loops": sum(scalar.values()),
        "scalar_functions": tuple(scalar),
        "recurrences": recurrences,
        "chain_bits": chain_bits,
        "scalar_math": tuple(sorted(scalar_math)),
        "vector_math": any(c.startswith("_ZGV") for f in functions.values() for c in f["math_calls"]),
        "divisions": sum(loop["div_sqrt"] for loop in loops),
        "integer_divisions": sum(loop["integer_div"] for loop in loops),
        "gathers": sum(loop["gathers"] for loop in loops),
        "spills": sum(loop["spills"] for loop in loops),
        "loop_instructions": sum(loop["instructions"] for loop in loops),
    }


def _scalar_math(function: Mapping[str, Any]) -> set[str]:
    """Math calls without a vector sibling (`_ZGVeN16v_expf` beside `expf` is a loop and its remainder).

    A square root is called only to set errno for a negative argument, on a path that is not taken: it does not count.
    """
    calls = set(function["math_calls"])
    vector = {call.rpartition("_")[2] for call in calls if call.startswith("_ZGV")}
    return {call for call in calls if not call.startswith("_ZGV") and call not in vector | {"sqrt", "sqrtf"}}


def _positive(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value >= 1 else None
