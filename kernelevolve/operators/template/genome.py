"""Genomes: how the graph is cut into kernels, and first ones to start a search from."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelevolve.operators.template import cpp, module
from kernelevolve.operators.template.fuse import kernels, readers
from kernelevolve.operators.template.graph import Graph, Op
from kernelevolve.operators.template.template import Parameter, Template

Genome = dict[str, Any]
Groups = list[tuple[str, ...]]


def computable(graph: Graph) -> tuple[Op, ...]:
    """Operations that belong into kernels."""
    return tuple(op for op in graph.ops if op.kind not in ("view", "opaque"))


def template_for(graph: Graph, ops: Sequence[str]) -> Template | None:
    """The first template that computes exactly these operations in one kernel."""
    return next((t for t in cpp.TEMPLATES if t.covers(graph, tuple(ops))), None)


def parameters(graph: Graph, plan: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[Parameter, ...]:
    """The decisions of one kernel of a genome."""
    return cpp.get(plan["template"]).parameters(graph, tuple(plan["ops"]), facts)


def plan(
    graph: Graph,
    ops: Sequence[str],
    facts: Mapping[str, Any],
    like: Mapping[str, Any] | None = None,
    template: str = "",
) -> dict[str, Any] | None:
    """A kernel for these operations: default decisions, or those of `like` where they still make sense."""
    found = cpp.get(template) if template else template_for(graph, ops)
    if found is None:
        return None
    old = (like or {}).get("params", {})
    params = {p.name: p.default for p in found.parameters(graph, tuple(ops), facts)}
    for p in found.parameters(graph, tuple(ops), facts):
        if old.get(p.name) in p.choices and type(old.get(p.name)) is type(p.default):
            params[p.name] = old[p.name]
    return {"ops": list(ops), "template": found.name, "params": params}


def in_order(graph: Graph, names: Iterable[str]) -> tuple[str, ...]:
    """Names in the order of the graph, each once."""
    wanted = set(names)
    return tuple(op.name for op in graph.ops if op.name in wanted)


def runs(graph: Graph, groups: Iterable[Sequence[str]]) -> bool:
    """Whether kernels for these groups can be put in an order."""
    genome = {"kernels": [{"ops": list(g), "template": "group"} for g in groups]}
    try:
        module.steps(graph, kernels(graph, genome))
    except ValueError:
        return False
    return True


def fused(graph: Graph, start: Groups, most: int = 10**6) -> Groups:
    """Merge groups greedily while one template computes both and the kernels still have an order.

    First everything at once, then producer into consumer; what is cheap and read by several is computed in each.

    Args:
        graph: The graph.
        start: Groups to merge.
        most: How many operations other than pointwise a group may have.
    """
    whole = in_order(graph, (n for g in start for n in g))
    if len(start) < 2 or (_heavy(graph, whole) <= most and template_for(graph, whole) is not None):
        return [whole] if start else []
    groups = list(start)
    changed = True
    while changed:
        changed = False
        for a in range(len(groups)):
            for b in _consumers(graph, groups, a):
                both = in_order(graph, (*groups[a], *groups[b]))
                rest = [g for k, g in enumerate(groups) if k not in (a, b)]
                if _heavy(graph, both) > most:
                    continue
                if template_for(graph, both) is not None and runs(graph, [*rest, both]):
                    groups = [*rest, both]
                    changed = True
                    break
            if changed:
                break
            copied = _recomputed(graph, groups, a)
            if copied is not None:
                groups, changed = copied, True
                break
    return sorted(groups, key=lambda g: whole.index(g[0]))


def _heavy(graph: Graph, names: Iterable[str]) -> int:
    return sum(graph.op(n).kind != "pointwise" for n in names)


def _consumers(graph: Graph, groups: Groups, a: int) -> list[int]:
    """Groups that read what group `a` makes."""
    names = {r.name for n in groups[a] for out in graph.op(n).outputs for r in readers(graph, out)}
    return [k for k, g in enumerate(groups) if k != a and names & set(g)]


def _recomputed(graph: Graph, groups: Groups, a: int) -> Groups | None:
    """Without group `a`, computed in each of its readers instead; None when it is not cheap or not possible."""
    targets = _consumers(graph, groups, a)
    outs = [out for n in groups[a] for out in graph.op(n).outputs]
    if len(targets) < 2 or len(groups[a]) > 3 or any(graph.op(n).kind != "pointwise" for n in groups[a]):
        return None
    inside = {n for k in targets for n in groups[k]} | set(groups[a])
    used_elsewhere = any(r.name not in inside for out in outs for r in readers(graph, out))
    if used_elsewhere or set(outs) & set(graph.output_names()):
        return None
    new = [in_order(graph, (*g, *groups[a])) if k in targets else g for k, g in enumerate(groups) if k != a]
    return new if all(template_for(graph, g) is not None for g in new) and runs(graph, new) else None


def by_call(graph: Graph) -> Groups:
    """Groups that came from one ATen call: a softmax or a norm stays whole, nothing else is fused."""
    groups: dict[str, list[str]] = {}
    for op in computable(graph):
        groups.setdefault(graph.calls.get(op.name, op.name), []).append(op.name)
    found: Groups = []
    for names in groups.values():
        found += [tuple(names)] if template_for(graph, names) is not None else [(n,) for n in names]
    return found if runs(graph, found) else [(op.name,) for op in computable(graph)]


def genome_of(
    graph: Graph, groups: Groups, facts: Mapping[str, Any], options: Mapping[str, Any] | None = None
) -> Genome | None:
    """Default kernels for groups; None when no template computes one of them."""
    plans = [plan(graph, g, facts) for g in groups]
    if any(p is None for p in plans):
        return None
    defaults = {name: choices[0] for name, choices in module.OPTIONS.items()}
    if int(facts.get("vector_lanes_fp32", 16)) < 16:
        defaults["vector_bits"] = 256
    return {"kernels": plans, "options": {**defaults, **(options or {})}}


def drafts(graph: Graph, facts: Mapping[str, Any], rng: random.Random) -> list[Genome]:
    """First genomes that differ in kind: fused, decided differently, fused in part, unfused, then random ones."""
    single: Groups = [(op.name,) for op in computable(graph)]
    whole = genome_of(graph, fused(graph, single), facts)
    found: list[Genome] = []
    candidates = [whole]
    if whole is not None:
        candidates.append(_shifted(graph, whole, facts, ("division", "variance", "keep", "tile", "block")))
        candidates.append(
            {**_shifted(graph, whole, facts, ("streams", "simd")), "options": {**whole["options"], "vector_bits": 256}}
        )
    if len(single) > 1:
        candidates.append(genome_of(graph, fused(graph, single, most=1), facts))
        candidates += [genome_of(graph, by_call(graph), facts), genome_of(graph, single, facts)]
    candidates += [random_genome(graph, whole, facts, rng) for _ in range(12)] if whole is not None else []
    seen = set()
    for genome in candidates:
        text = json.dumps(genome, sort_keys=True)
        if genome is not None and text not in seen:
            seen.add(text)
            found.append(genome)
    return found


def _shifted(graph: Graph, genome: Genome, facts: Mapping[str, Any], names: Sequence[str]) -> Genome:
    """The same cut with other decisions for the named parameters: the choice after the default."""
    plans = []
    for p in genome["kernels"]:
        params = dict(p["params"])
        for q in parameters(graph, p, facts):
            if q.name in names and len(q.choices) > 1:
                params[q.name] = q.choices[(q.choices.index(q.default) + 1) % len(q.choices)]
        plans.append({**p, "params": params})
    return {**genome, "kernels": plans}


def random_genome(graph: Graph, genome: Genome, facts: Mapping[str, Any], rng: random.Random) -> Genome:
    """The same cut with every decision drawn."""
    plans = [
        {**p, "params": {q.name: rng.choice(q.choices) for q in parameters(graph, p, facts)}} for p in genome["kernels"]
    ]
    return {"kernels": plans, "options": {**genome["options"], "vector_bits": rng.choice((512, 256))}}


def crossed(graph: Graph, first: Genome, second: Genome, facts: Mapping[str, Any], rng: random.Random) -> Genome:
    """A child of two genomes: whole kernels from either, so that each operation is still computed; options drawn."""
    plans: list[dict[str, Any]] = []
    covered: set[str] = set()
    pool = [(p, rng.random()) for g in (first, second) for p in g["kernels"]]
    for p, _ in sorted(pool, key=lambda item: item[1]):
        if not covered & set(p["ops"]):
            plans.append(dict(p))
            covered.update(p["ops"])
    for op in computable(graph):
        if op.name not in covered:
            alone = plan(graph, (op.name,), facts)
            if alone is not None:
                plans.append(alone)
    order = [op.name for op in graph.ops]
    plans.sort(key=lambda p: order.index(p["ops"][0]))
    child = {
        "kernels": plans,
        "options": {n: rng.choice((first, second))["options"].get(n, c[0]) for n, c in module.OPTIONS.items()},
    }
    complete = {op.name for op in computable(graph)} == {n for p in plans for n in p["ops"]}
    return child if complete and runs(graph, [p["ops"] for p in plans]) else {**first, "options": child["options"]}
