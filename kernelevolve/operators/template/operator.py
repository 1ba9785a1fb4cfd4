"""The template operator: drafts and moves over genomes, written as modules. Needs no key and no network."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

from kernelevolve import errors
from kernelevolve.operators.base import Operator, genome_key, source_key
from kernelevolve.operators.template import genome as genomes
from kernelevolve.operators.template import module
from kernelevolve.operators.template.capture import capture
from kernelevolve.operators.template.genome import Genome
from kernelevolve.operators.template.graph import Graph
from kernelevolve.operators.template.lower import lower
from kernelevolve.operators.template.moves import moves, ranked
from kernelevolve.records import Context, Node, Problem, Proposal, Status


class TemplateOperator(Operator):
    """Writes C++ candidates from a graph of the problem.

    Args:
        capture_timeout_s: Limit on torch.export in its worker.
    """

    name = "template"

    def __init__(self, *, capture_timeout_s: float = 120.0) -> None:
        self.capture_timeout_s = capture_timeout_s
        self._problem: Problem | None = None
        self._graph: Graph | None = None
        self._facts: Mapping[str, Any] = {}
        self._drafts: list[Genome] = []

    def prepare(self, problem: Problem, facts: Mapping[str, Any]) -> None:
        """Capture and lower the problem. Raises NotCoveredError when no kernel of our own is possible."""
        self._problem, self._facts = problem, facts
        self._graph = covered(capture(problem, timeout_s=self.capture_timeout_s), problem.id)
        self._drafts = genomes.drafts(self._graph, facts, random.Random(0))  # noqa: S311 - a choice, not a secret
        if not self._drafts:
            raise errors.NotCoveredError(f"{problem.id}: no cut of its graph into kernels can be written")

    @property
    def graph(self) -> Graph:
        """The prepared problem's graph."""
        if self._graph is None:
            raise errors.SettingError("TemplateOperator.write needs prepare(problem, facts) first")
        return self._graph

    def write(self, context: Context) -> Proposal:
        """A draft when asked for one, else a child of the parents: a move, or a cross of two."""
        start = time.monotonic()
        tried = set(context.tried)
        for move, genome, rationale in self._candidates(context):
            if genome_key(genome) in tried:
                continue
            written = self._written(genome)
            if written is None or source_key(written.source) in tried:
                continue
            left = f" {', '.join(written.in_pytorch)} stays in PyTorch." if written.in_pytorch else ""
            return Proposal(
                source=written.source,
                language="cpp",
                operator=self.name,
                rationale=rationale + left,
                move=move,
                parents=context.selection.parents,
                genome=json.loads(json.dumps(genome)),
                own_kernels=written.own_kernels,
                write_s=time.monotonic() - start,
                selection=context.selection,
            )
        return Proposal(
            source="",
            language="cpp",
            operator=self.name,
            parents=context.selection.parents,
            failure=Status.NO_CODE,
            failure_detail="every draft and every move from here has been tried in this study",
            selection=context.selection,
            write_s=time.monotonic() - start,
        )

    def _written(self, genome: Genome) -> module.Module | None:
        problem = self._problem
        assert problem is not None
        try:
            return module.write(problem.source, problem.title, self.graph, genome)
        except (ValueError, KeyError, NotImplementedError):
            return None  # a combination that no template writes after all; the next candidate is tried

    def _candidates(self, context: Context) -> Iterator[tuple[str, Genome, str]]:
        """Move name, genome and rationale, best first."""
        rng = random.Random(context.seed)  # noqa: S311
        parents = [g for g in (self._genome(node) for node in context.parents) if g is not None]
        if not parents:
            yield from self._drafted(rng)
            return
        if len(parents) > 1:
            numbers = " and ".join(str(n) for n in context.selection.parents[:2])
            for _ in range(4):
                child = genomes.crossed(self.graph, parents[0], parents[1], self._facts, rng)
                yield "cross", child, f"Kernels and options of nodes {numbers}, mixed."
        parent = parents[0]
        found = list(moves(self.graph, parent, self._facts))
        for move in ranked(found, context, rng):
            yield move.name, move.genome, move.rationale
        for first in found:  # two changes at once, when single ones are used up
            for second in ranked(list(moves(self.graph, first.genome, self._facts)), context, rng)[:8]:
                yield f"{first.name}, {second.name}", second.genome, f"{first.rationale} {second.rationale}"

    def _drafted(self, rng: random.Random) -> Iterator[tuple[str, Genome, str]]:
        for k, genome in enumerate(self._drafts):
            count = len(genome["kernels"])
            families = ", ".join(sorted({p["template"] for p in genome["kernels"]}))
            cut = f"{count} kernel{'s' if count > 1 else ''} ({families})"
            yield "draft", genome, f"Draft {k + 1}: {cut}, {genome['options']['vector_bits']}-bit vectors."
        while True:
            genome = genomes.random_genome(self.graph, self._drafts[0], self._facts, rng)
            yield "draft", genome, f"A draft with decisions drawn at random for {len(genome['kernels'])} kernel(s)."
            if rng.random() < 0.02:
                return

    def _genome(self, node: Node) -> Genome | None:
        """A parent's genome, if it is one of this operator's for this graph."""
        genome = node.proposal.genome
        if not genome or "kernels" not in genome:
            return None
        known = {op.name for op in genomes.computable(self.graph)}
        own = json.loads(json.dumps(genome))
        return own if all(set(p["ops"]) <= known for p in own["kernels"]) else None


def covered(captured: Mapping[str, Any], problem: str) -> Graph:
    """The graph in which every operation beside views and PyTorch's own is computed by some template alone.

    Raises NotCoveredError when nothing is left to compute.
    """
    keep: set[str] = set()
    while True:
        graph = lower(captured, keep)
        left = {
            graph.calls[op.name] for op in genomes.computable(graph) if genomes.template_for(graph, (op.name,)) is None
        }
        if not left:
            break
        keep |= left
    if not genomes.computable(graph):
        names = ", ".join(dict.fromkeys(op.origin for op in graph.ops)) or "none"
        raise errors.NotCoveredError(
            f"{problem}: no template computes any of its operators ({names}); use another operator "
            "such as an LLM, or your own kernel"
        )
    return graph
