"""Drafts, moves and crosses of the template operator."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kernelevolve import errors, problems
from kernelevolve.operators import create, genome_key, keys
from kernelevolve.operators.template import genome as genomes
from kernelevolve.operators.template import module
from kernelevolve.operators.template.moves import moves, ranked
from kernelevolve.operators.template.operator import TemplateOperator
from kernelevolve.records import Context, Diagnosis, Node, Problem, Proposal, Result, Selection, Status
from tests.operators.build import FACTS, compare, graph_of, outputs_of, problem_of

SOFTMAX = problem_of(
    "e = (x - x.amax(-1, keepdim=True)).exp()\nreturn e / e.sum(-1, keepdim=True), x * 2", "torch.randn(64, 200)"
)


def prepared(problem: Problem = SOFTMAX) -> TemplateOperator:
    operator = create("template")
    assert isinstance(operator, TemplateOperator)
    operator.prepare(problem, FACTS)
    return operator


def ask(parents: Sequence[Node] = (), **changes: object) -> Context:
    selection = Selection(tuple(n.number for n in parents), "because", "test")
    return dataclasses.replace(Context(selection, tuple(parents)), **changes)


def node(number: int, proposal: Proposal, fitness: float = 1.0) -> Node:
    return Node(number, Result(proposal, Status.CORRECT), fitness, "")


def test_the_same_context_gives_the_same_proposal() -> None:
    first, second = prepared(), prepared()
    draft = first.write(ask(seed=5))
    assert draft.source == second.write(ask(seed=5)).source
    child = ask([node(1, draft)], seed=9)
    assert first.write(child).source == second.write(child).source


def test_drafts_differ_and_are_not_repeated() -> None:
    operator, tried, cuts = prepared(), [], set()
    for seed in range(8):
        proposal = operator.write(ask(seed=seed, tried=tuple(tried)))
        assert proposal.failure is None
        assert not set(keys(proposal)) & set(tried)
        assert proposal.genome is not None
        cuts.add(tuple(tuple(k["ops"]) for k in proposal.genome["kernels"]))
        tried += keys(proposal)
    assert len(cuts) >= 3, "fused, partly fused and unfused"


def test_a_move_changes_one_thing_and_says_what() -> None:
    operator = prepared()
    parent = node(1, operator.write(ask()))
    child = operator.write(ask([parent], seed=1))
    assert child.parents == (1,)
    assert child.genome != parent.proposal.genome
    assert child.move
    assert child.rationale.endswith(".")


def test_the_diagnosis_decides_which_move_comes_first() -> None:
    operator = prepared()
    found = list(moves(operator.graph, dict(operator.write(ask()).genome or {}), FACTS))
    for cause in ("reduction_chain", "math_calls", "single_thread"):
        context = ask(diagnosis=Diagnosis("compute", "", causes=(cause,)))
        firsts = [ranked(found, context, random.Random(seed))[0] for seed in range(40)]
        assert sum(cause in m.causes for m in firsts) >= 20


def test_a_move_that_lost_before_is_thought_of_later() -> None:
    operator = prepared()
    parent = node(1, operator.write(ask()))
    found = list(moves(operator.graph, dict(parent.proposal.genome or {}), FACTS))
    bad = found[0].name
    lost = node(2, dataclasses.replace(parent.proposal, move=bad, parents=(1,)), 0.5)
    context = ask([parent], history=(parent, lost))
    places = [[m.name for m in ranked(found, context, random.Random(seed))].index(bad) for seed in range(30)]
    assert sorted(places)[15] > len(found) // 2


def test_an_exhausted_search_says_so() -> None:
    problem = problem_of("return x + 1", "torch.randn(3)")
    operator = prepared(problem)
    tried: list[str] = []
    first = operator.write(ask())
    for seed in range(4000):
        proposal = operator.write(ask([node(1, first)], seed=seed, tried=tuple(tried)))
        if proposal.failure is not None:
            break
        tried += keys(proposal)
    assert proposal.failure is Status.NO_CODE
    assert "tried" in proposal.failure_detail
    assert proposal.source == ""


def test_two_parents_are_crossed_into_a_whole_genome() -> None:
    operator = prepared()
    graph = operator.graph
    drafts = genomes.drafts(graph, FACTS, random.Random(0))
    everything = {op.name for op in genomes.computable(graph)}
    for seed in range(20):
        child = genomes.crossed(graph, drafts[0], drafts[seed % len(drafts)], FACTS, random.Random(seed))
        assert {n for k in child["kernels"] for n in k["ops"]} == everything
        assert module.write(SOFTMAX.source, "x", graph, child).own_kernels >= 1


def test_a_problem_that_no_template_covers_is_refused_with_its_operators() -> None:
    with pytest.raises(errors.NotCoveredError, match="linalg_det"):
        prepared(problem_of("return torch.linalg.det(x)", "torch.randn(4, 4)"))


def test_a_forward_that_cannot_be_exported_is_refused_with_the_reason() -> None:
    with pytest.raises(errors.NotCoveredError, match="export"):
        prepared(problem_of("if x.sum() > 0:\n    return x\nreturn x + 1", "torch.randn(4)"))


def test_write_before_prepare_is_an_error() -> None:
    with pytest.raises(errors.SettingError, match="prepare"):
        TemplateOperator().write(ask())


def _tried_genomes(problem: Problem, count: int | None) -> list[tuple[str, genomes.Genome]]:
    """Drafts and the moves from the first two; a fixed sample of them unless count is None."""
    graph = graph_of(problem)
    drafts = genomes.drafts(graph, FACTS, random.Random(0))
    found = [("draft", g) for g in drafts[:5]]
    found += [(m.name, m.genome) for g in drafts[:2] for m in moves(graph, g, FACTS)]
    unique = {genome_key(g): (name, g) for name, g in found}
    pool = list(unique.values())
    return pool if count is None else random.Random(7).sample(pool, min(count, len(pool)))


def _all_right(problem: Problem, folder: Path, count: int | None) -> None:
    graph = graph_of(problem)
    for name, genome in _tried_genomes(problem, count):
        source = module.write(problem.source, problem.title, graph, genome).source
        expected, got, _ = outputs_of(problem, source, folder)
        for k, (want, have) in enumerate(zip(expected, got, strict=True)):
            compare(want, have, f"{problem.id}, {name}, output {k}", 256)


def test_a_sample_of_moves_gives_right_kernels(tmp_path: Path) -> None:
    _all_right(SOFTMAX, tmp_path, 6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", problems.suite("cpu"))
def test_all_drafts_and_moves_of_a_shipped_problem_give_right_kernels(tmp_path: Path, name: str) -> None:
    torch.set_num_threads(2)
    _all_right(problems.load(name), tmp_path, 24)
