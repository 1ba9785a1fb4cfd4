"""Why a candidate takes its time, by rules that a reader can check. No model, no chance: the same profile gives the
same diagnosis.

A rule's score is the share of the time that its cause may explain, between 0 and 1; causes are ranked by it. What
neither the memory's nor the arithmetic's peak explains is the *room*, and what code shows is scaled by it: scalar
code in a kernel that already runs at the memory's speed costs nothing. The weights order causes by what they cost
on an out-of-order core, per element in fp32: a call of scalar libm some 10 to 20 ns, scalar instead of vector
arithmetic up to the lanes (4 to 16 times), one dependent chain its latency (4 cycles an add instead of half a cycle),
a gathered element about one cycle, a division 4 to 10 cycles per vector, a spilled register 1 to 2 cycles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from kernelevolve.profiling.base import Subject
from kernelevolve.profiling.evidence import Evidence, gather
from kernelevolve.records import Diagnosis, Result, Status

MEMORY_BOUND = 0.6
"""Share of the memory's peak. A kernel that moves all its data twice reaches 0.5 at best; one that does not, more."""
COMPUTE_BOUND = 0.5
"""Share of the FLOP peak. Well-tuned products reach 0.7 to 0.9; half is where more arithmetic tuning pays little."""
SHORT_MS = 0.02
"""Below 20 µs the call (2 µs), the allocation and the start of a parallel region (5 to 10 µs) are a visible part."""
OVERHEAD_BOUND = 0.25
"""Share of the time spent in calls."""
MANY_KERNELS = 3
"""From three kernels on, at least two intermediates travel through memory that a fused kernel keeps in registers."""
FEW_CHAINS = 2
"""An add takes 4 cycles and two start per cycle: eight chains are full speed, two are a quarter."""
PARALLEL_MS = 0.05
"""Under 50 µs a parallel region's start costs what a second thread saves."""
SPREAD = 0.2
"""Round medians that differ by a fifth, where the baseline's in the same session do not by half as much."""
EFFICIENCY = 0.5
"""Parallel efficiency under which threads wait more than they work."""
SPILLS = 0.1
"""Share of the loops' instructions."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A cause: how much it may explain (0: it does not hold), and the sentence that says so."""

    tag: str
    score: Callable[[Evidence], float]
    sentence: Callable[[Evidence], str]


def _launch(e: Evidence) -> float:
    share = e.overhead_share or 0.0
    if share >= OVERHEAD_BOUND:
        return share
    return max(share, 0.3 * e.room) if e.median_ms is not None and e.median_ms < SHORT_MS else 0.0


def _scalar(e: Evidence) -> float:
    """Machine code decides; the compiler's word alone (other loops of the function did vectorise) counts half."""
    if e.scalar_fp_loops:
        return 0.8 * e.room
    return 0.4 * e.room * len(e.missed_loops) / e.loops_remarked if e.missed_loops else 0.0


def _scalar_sentence(e: Evidence) -> str:
    where = (
        f"{e.scalar_fp_loops} floating-point loop(s) in {', '.join(e.scalar_functions[:3])} are scalar"
        if e.scalar_fp_loops
        else f"{len(e.missed_loops)} of {e.loops_remarked} innermost loops did not vectorise"
    )
    return f"{where} ({'; '.join(e.missed_loops[:2])})." if e.missed_loops else f"{where}."


def _chain(e: Evidence) -> float:
    """A chain of vectors advances by all their lanes per latency: half as likely to be what is waited for."""
    return (0.35 if e.chain_bits else 0.7) * e.room if e.recurrences and e.recurrences <= FEW_CHAINS else 0.0


def _narrow(e: Evidence) -> float:
    if not e.machine_bits or not 0 < e.code_bits < e.machine_bits or e.scalar_fp_loops:
        return 0.0
    return 0.3 * e.room * (1 - e.code_bits / e.machine_bits)


def _uneven(e: Evidence) -> float:
    if e.parallel_efficiency is not None and e.parallel and e.parallel_efficiency < EFFICIENCY:
        return (1 - e.parallel_efficiency) * e.room
    if not e.parallel or e.round_spread is None or e.baseline_round_spread is None:
        return 0.0
    unsteady = e.round_spread >= SPREAD and e.baseline_round_spread <= e.round_spread / 2
    return min(1.0, e.round_spread) * e.room if unsteady else 0.0


def _uneven_sentence(e: Evidence) -> str:
    if e.parallel_efficiency is not None and e.parallel_efficiency < EFFICIENCY:
        return f"{e.threads} threads work at {e.parallel_efficiency:.0%} efficiency."
    steady = e.baseline_round_spread or 0.0
    return f"Its rounds differ by {e.round_spread or 0:.0%}, the steadiest baseline's by {steady:.0%}."


RULES = (
    Rule(
        "memory_bound",
        lambda e: e.memory_share or 0.0 if (e.memory_share or 0.0) >= MEMORY_BOUND else 0.0,
        lambda e: (
            f"It moves at least {e.achieved_gb_s:.3g} GB/s, {e.memory_share:.0%} of the {e.peak_gb_s:.3g} GB/s peak."
        ),
    ),
    Rule(
        "launch_overhead",
        _launch,
        lambda e: (
            f"{e.kernels} call(s) of about {e.call_overhead_us:.2g} µs stand in {1000 * (e.median_ms or 0):.3g} µs."
        ),
    ),
    Rule(
        "math_calls",
        lambda e: 0.9 * e.room if e.scalar_math else 0.0,
        lambda e: f"Loops call {', '.join(e.scalar_math[:4])} one element at a time.",
    ),
    Rule("not_vectorised", _scalar, _scalar_sentence),
    Rule(
        "reduction_chain",
        _chain,
        lambda e: f"A loop waits on {e.recurrences} dependent chain(s) of arithmetic; about 8 would fill the units.",
    ),
    Rule(
        "single_thread",
        lambda e: (
            0.65 * (1 - 1 / (e.threads or 1))
            if e.seen_code and not e.parallel and (e.median_ms or 0.0) >= PARALLEL_MS
            else 0.0
        ),
        lambda e: f"No parallel region, and the machine has {e.threads} threads.",
    ),
    Rule("imbalance", _uneven, _uneven_sentence),
    Rule(
        "many_kernels",
        lambda e: 0.6 * (1 - 2 / e.kernels) if e.kernels >= MANY_KERNELS else 0.0,
        lambda e: f"{e.kernels} kernels pass intermediate results through memory.",
    ),
    Rule(
        "gather",
        lambda e: 0.5 * e.room if e.gathers else 0.0,
        lambda e: f"{e.gathers} indexed load(s) in innermost loops fetch one element at a time.",
    ),
    Rule(
        "library_op",
        lambda e: 0.45 if e.library else 0.0,
        lambda e: f"Part stays in PyTorch: {', '.join(e.library[:4])}.",
    ),
    Rule(
        "division",
        lambda e: 0.4 * e.room if e.divisions or e.integer_divisions else 0.0,
        lambda e: (
            f"Innermost loops hold {e.divisions} division(s) or square root(s)"
            f"{f' and {e.integer_divisions} integer division(s)' if e.integer_divisions else ''}."
        ),
    ),
    Rule(
        "spills",
        lambda e: 0.3 * e.room if e.spills >= 2 and e.spills >= SPILLS * e.loop_instructions else 0.0,
        lambda e: f"{e.spills} of {e.loop_instructions} loop instructions move vector registers to or from the stack.",
    ),
    Rule(
        "narrow_vectors",
        _narrow,
        lambda e: f"Vectors of {e.code_bits} bits on a machine with {e.machine_bits}.",
    ),
    Rule(
        "cache_resident",
        lambda e: 0.1 if e.in_cache else 0.0,
        lambda e: f"Its {e.bytes_min / 2**20:.3g} MiB came from cache, not memory.",
    ),
)

COMPUTE_TAGS = ("math_calls", "not_vectorised", "reduction_chain", "division", "gather")
"""Causes in the instructions: a kernel far from both peaks that shows one is limited by its own instruction stream."""


def diagnose(parts: Mapping[str, Any], subject: Subject, *, one_thread_ms: float | None = None) -> Diagnosis:
    """The diagnosis of a profile's parts. `one_thread_ms`: its time with one thread, when somebody measured it."""
    if not subject.result.correct:
        return _incorrect(subject.result)
    evidence = gather(parts, subject, one_thread_ms)
    scored = [(rule.score(evidence), rule) for rule in RULES]
    ranked = [rule for score, rule in sorted(scored, key=lambda pair: -pair[0]) if score > 0]  # stable: table order
    scores = {rule.tag: score for score, rule in scored if score > 0}
    bottleneck = _bottleneck(evidence, scores)
    sentences = [_headline(evidence, bottleneck), *(rule.sentence(evidence) for rule in ranked[:2])]
    absent = [f"{name}: {part['missing']}" for name, part in parts.items()
              if isinstance(part, Mapping) and "missing" in part]  # fmt: skip
    if absent and bottleneck == "unknown":
        sentences.append(f"Not seen: {'; '.join(absent)}.")
    return Diagnosis(
        bottleneck,
        " ".join(sentence for sentence in sentences if sentence),
        {**_numbers(evidence), **{f"score.{tag}": round(score, 3) for tag, score in scores.items()}},
        tuple(rule.tag for rule in ranked),
    )


def _bottleneck(e: Evidence, scores: Mapping[str, float]) -> str:
    """One word, first rule that holds. Peaks are evidence of their own; code is read only when they leave room."""
    if e.median_ms is None:
        return "unknown"
    top = max(scores.values(), default=0.0)
    calls_dominate = (e.overhead_share or 0.0) >= OVERHEAD_BOUND or 0.0 < top == scores.get("launch_overhead")
    if calls_dominate and (e.memory_share or 0.0) < MEMORY_BOUND:
        return "overhead"
    if (e.memory_share or 0.0) >= max(MEMORY_BOUND, e.compute_share or 0.0):
        return "memory"
    if (e.compute_share or 0.0) >= COMPUTE_BOUND:
        return "compute"
    if "imbalance" in scores and scores["imbalance"] >= max(scores.get(tag, 0.0) for tag in COMPUTE_TAGS):
        return "imbalance"
    if e.memory_share is not None and any(tag in scores for tag in COMPUTE_TAGS):
        return "compute"
    # More than half of what one extra pass over the data would show, and nothing in the code that explains the rest.
    if e.memory_share is not None and e.memory_share >= MEMORY_BOUND / 2:
        return "memory"
    return "unknown"


def _headline(e: Evidence, bottleneck: str) -> str:
    if e.median_ms is None:
        return "Not timed, so what limits it is unknown."
    shares = [
        f"{share:.0%} of the {name} bound's pace"
        for name, share in (("memory", e.memory_share), ("arithmetic", e.compute_share))
        if share is not None
    ]
    pace = f", {' and '.join(shares)}" if shares else ", with no physical bound known"
    return f"{bottleneck.capitalize()}: {e.median_ms:.4g} ms{pace}."


def _numbers(e: Evidence) -> dict[str, float]:
    values = {**dataclasses.asdict(e), "overhead_share": e.overhead_share, "room": e.room}
    return {key: float(value) for key, value in values.items() if isinstance(value, (int, float))}


def _incorrect(result: Result) -> Diagnosis:
    """A failure's diagnosis: the status is the cause, the detail and the worst leaf are the evidence."""
    numbers: dict[str, float] = {}
    summary = f"{result.status.value.replace('_', ' ').capitalize()}: {result.detail or 'no detail given'}"
    failed = [leaf for leaf in result.errors if not leaf.passed]
    if failed:
        worst = max(failed, key=lambda leaf: leaf.error / leaf.limit if leaf.limit else leaf.error)
        numbers = {"error": worst.error, "limit": worst.limit, "reference_error": worst.reference_error}
        summary += (
            f" Worst is output {worst.leaf} in trial {worst.trial}: error {worst.error:.3g}, limit {worst.limit:.3g},"
            f" the reference's own {worst.reference_error:.3g}."
        )
    if result.status is Status.SUSPECT:
        summary += " Quarantined: a time that cannot be is not a time to tune."
    return Diagnosis("incorrect", summary[:1000], numbers, (result.status.value,))
