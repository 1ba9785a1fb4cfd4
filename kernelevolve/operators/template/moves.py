"""Moves: everything that can be changed about a genome in one step, ranked by what the parent suffers from.

A move names the causes of a Diagnosis that it addresses. The rank is the best cause's place in the parent's list, less
what history says: a move that lost on a relative is thought of later, one that won earlier.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelevolve.operators.template import cpp, module
from kernelevolve.operators.template.fuse import readers
from kernelevolve.operators.template.genome import Genome, in_order, parameters, plan, runs, template_for
from kernelevolve.operators.template.graph import Graph
from kernelevolve.records import Context, Diagnosis, Node

EXPLORE = 0.25
"""Share of steps on which a move is drawn from all instead of from the best ranked."""

_OPTION_CAUSES: Mapping[str, tuple[str, ...]] = {
    "vector_bits": ("narrow_vectors", "not_vectorised"),
    "optimise": ("spills",),
    "unroll": ("reduction_chain", "not_vectorised"),
    "threads": ("single_thread", "launch_overhead", "imbalance"),
}


@dataclasses.dataclass(frozen=True)
class Move:
    """One change and its outcome."""

    name: str
    """The same for the same change of the same family of kernels: "rows.streams=4", "fuse rows+pointwise"."""
    genome: Genome
    rationale: str
    causes: tuple[str, ...]


def moves(graph: Graph, genome: Genome, facts: Mapping[str, Any]) -> Iterator[Move]:
    """Every legal move, in a fixed order."""
    yield from _settings(graph, genome, facts)
    yield from _fusions(graph, genome, facts)
    yield from _splits(graph, genome, facts)
    yield from _recomputations(graph, genome, facts)
    yield from _templates(graph, genome, facts)
    yield from _options(genome, facts)


def _replaced(
    genome: Genome, changes: Mapping[int, dict[str, Any] | None], added: Sequence[dict[str, Any]] = ()
) -> Genome:
    """The genome with kernels replaced (None: removed) and added."""
    kept = [changes.get(k, p) for k, p in enumerate(genome["kernels"])]
    return {**genome, "kernels": [p for p in [*kept, *added] if p is not None]}


def _settings(graph: Graph, genome: Genome, facts: Mapping[str, Any]) -> Iterator[Move]:
    for k, p in enumerate(genome["kernels"]):
        for q in parameters(graph, p, facts):
            now = p["params"].get(q.name, q.default)
            for choice in q.choices:
                if choice != now:
                    changed = {**p, "params": {**p["params"], q.name: choice}}
                    what = q.why or q.name
                    yield Move(
                        f"{p['template']}.{q.name}={choice}", _replaced(genome, {k: changed}),
                        f"{_named(p)}: {what} ({q.name}) from {now} to {choice}.", q.helps,
                    )  # fmt: skip


def _named(p: Mapping[str, Any]) -> str:
    return f"{p['template']} kernel of {p['ops'][-1]}"


def _fusions(graph: Graph, genome: Genome, facts: Mapping[str, Any]) -> Iterator[Move]:
    plans = genome["kernels"]
    for a, first in enumerate(plans):
        outs = {out for n in first["ops"] for out in graph.op(n).outputs}
        reading = {r.name for out in outs for r in readers(graph, out)}
        for b, second in enumerate(plans):
            if a == b or not reading & set(second["ops"]):
                continue
            both = in_order(graph, (*first["ops"], *second["ops"]))
            rest = [p["ops"] for k, p in enumerate(plans) if k not in (a, b)]
            if template_for(graph, both) is None or not runs(graph, [*rest, both]):
                continue
            merged = plan(graph, both, facts, like=second)
            assert merged is not None
            saved = sum(_bytes(graph, out) for out in outs)
            yield Move(
                f"fuse {first['template']}+{second['template']}",
                _replaced(genome, {a: merged, b: None}),
                f"Compute {first['ops'][-1]} and {second['ops'][-1]} in one kernel: up to "
                f"{2 * saved / 1e6:.1f} MB less to write and read again, and one parallel region less.",
                ("many_kernels", "memory_bound", "launch_overhead"),
            )


def _bytes(graph: Graph, name: str) -> int:
    value = graph.values[name]
    size = (
        8
        if value.dtype.endswith("64")
        else 1
        if value.dtype in ("bool", "int8", "uint8")
        else 2
        if "16" in value.dtype
        else 4
    )
    return size * (value.numel or 0)


def _splits(graph: Graph, genome: Genome, facts: Mapping[str, Any]) -> Iterator[Move]:
    for k, p in enumerate(genome["kernels"]):
        ops = list(p["ops"])
        cuts = list(range(1, len(ops)))
        if len(ops) > 8:
            cuts = [
                c for c in cuts if graph.op(ops[c]).kind != "pointwise" or graph.op(ops[c - 1]).kind != "pointwise"
            ] or [len(ops) // 2]
        for cut in cuts:
            before, after = ops[:cut], ops[cut:]
            rest = [q["ops"] for i, q in enumerate(genome["kernels"]) if i != k]
            if (
                template_for(graph, before) is None
                or template_for(graph, after) is None
                or not runs(graph, [*rest, before, after])
            ):
                continue
            parts = [plan(graph, part, facts, like=p) for part in (before, after)]
            assert parts[0] is not None
            assert parts[1] is not None
            yield Move(
                f"split {p['template']}@{ops[cut]}",
                _replaced(genome, {k: parts[0]}, [parts[1]]),
                f"Give {ops[cut - 1]} and what comes before it a kernel of their own: {cut} + "
                f"{len(ops) - cut} operations, fewer values in registers at a time.",
                ("spills", "cache_resident"),
            )


def _recomputations(graph: Graph, genome: Genome, facts: Mapping[str, Any]) -> Iterator[Move]:
    plans = genome["kernels"]
    for a, first in enumerate(plans):
        for name in first["ops"]:
            if graph.op(name).kind != "pointwise":
                continue
            for b, second in enumerate(plans):
                if a == b or name in second["ops"] or not {r.name for r in readers(graph, name)} & set(second["ops"]):
                    continue
                both = in_order(graph, (*second["ops"], name))
                if template_for(graph, both) is None:
                    continue
                again = plan(graph, both, facts, like=second)
                without = [n for n in first["ops"] if n != name]
                changes: dict[int, dict[str, Any] | None] = {b: again}
                still = {r.name for r in readers(graph, name)} - set(both)
                if not still and name not in graph.output_names():
                    changes[a] = plan(graph, without, facts, like=first) if without else None
                    if without and changes[a] is None:
                        continue
                new = _replaced(genome, changes)
                if runs(graph, [p["ops"] for p in new["kernels"]]):
                    yield Move(
                        f"recompute {name}",
                        new,
                        f"Compute {name} again in the kernel of {second['ops'][-1]} instead of reading "
                        f"{_bytes(graph, name) / 1e6:.2f} MB.",
                        ("memory_bound", "many_kernels"),
                    )


def _templates(graph: Graph, genome: Genome, facts: Mapping[str, Any]) -> Iterator[Move]:
    for k, p in enumerate(genome["kernels"]):
        for t in cpp.TEMPLATES:
            if t.name != p["template"] and t.covers(graph, tuple(p["ops"])):
                other = plan(graph, p["ops"], facts, like=p, template=t.name)
                yield Move(
                    f"template {p['template']}->{t.name}", _replaced(genome, {k: other}),
                    f"Write the kernel of {p['ops'][-1]} as {t.name} instead of {p['template']}.",
                    ("not_vectorised", "reduction_chain", "imbalance", "gather"),
                )  # fmt: skip


def _options(genome: Genome, facts: Mapping[str, Any]) -> Iterator[Move]:
    for name, choices in module.OPTIONS.items():
        now = genome["options"].get(name, choices[0])
        for choice in choices:
            if choice == now or (name == "threads" and choice >= int(facts.get("cores", 1))):
                continue
            yield Move(
                f"{name}={choice}", {**genome, "options": {**genome["options"], name: choice}},
                f"Compile the module with {name} {choice} instead of {now}.", _OPTION_CAUSES[name],
            )  # fmt: skip


def ranked(found: Sequence[Move], context: Context, rng: random.Random) -> list[Move]:
    """The moves in the order in which they should be tried."""
    record = _record(context.history)
    noise = {m.name: rng.random() for m in found}
    if rng.random() < EXPLORE:
        return sorted(found, key=lambda m: noise[m.name])
    return sorted(found, key=lambda m: (-_score(m, context.diagnosis, record) - 0.15 * noise[m.name], m.name))


def _score(move: Move, diagnosis: Diagnosis | None, record: Mapping[str, float]) -> float:
    causes = diagnosis.causes if diagnosis is not None else ()
    places = [causes.index(c) for c in move.causes if c in causes]
    aim = 1.0 / (1 + min(places)) if places else 0.0
    return aim + record.get(move.name, 0.0)


def _record(history: Sequence[Node]) -> dict[str, float]:
    """What each move has brought so far: between -1 (always lost) and 0.5 (won)."""
    fitness = {node.number: node.fitness for node in history}
    seen: dict[str, list[float]] = {}
    for node in history:
        before = max((fitness[p] for p in node.parents if p in fitness), default=0.0)
        if node.proposal.move and before > 0:
            seen.setdefault(node.proposal.move, []).append(node.fitness / before)
    return {name: 0.5 if max(gains) > 1.02 else -0.3 if max(gains) > 0.97 else -1.0 for name, gains in seen.items()}
