"""Made-up studies: nodes with plausible shapes, statuses and samples, for tests of whatever reads a study.

No number here was measured. A seed fixes everything.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from kernelevolve.records import (
    Diagnosis,
    Interval,
    LeafError,
    Node,
    Problem,
    Proposal,
    Result,
    Selection,
    Status,
    TensorSpec,
    Timing,
    to_dict,
)
from kernelevolve.store import StudyLog, Workspace

_FAILURES = (Status.WRONG_VALUE, Status.COMPILE_ERROR, Status.CRASHED, Status.TIMEOUT, Status.NO_CODE, Status.DUPLICATE)
_MOVES = ("vector_width", "fuse", "tile_rows", "two_pass", "threads", "unroll")


def problem() -> Problem:
    """An RMSNorm-like problem record; its source is never run."""
    return Problem(
        id="cpu/rms_norm", source="class Model: ...\n", code_hash="0" * 32, suite="cpu", suite_version="1",
        inputs=(TensorSpec((4096, 1024), "float32", "x"),), outputs=(TensorSpec((4096, 1024), "float32", "y"),),
        parameters=(TensorSpec((1024,), "float32", "weight"),), bytes_min=2 * 4096 * 1024 * 4 + 4096, flops=0,
    )


def source(step: int, *, body: str = "acc += x[i] * x[i];") -> str:
    """A module that looks like a candidate."""
    return (f'"""RMSNorm, variant {step}."""\nimport torch\n\nCPP = r"""\nvoid kernel(const float* x, long n) {{\n'
            f'  float acc = 0;\n  for (long i = 0; i < n; i += {1 + step % 16}) {body}\n}}\n"""\n\n\n'
            f"class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return run(CPP, x, width={step})\n")


def nodes(count: int, *, seed: int = 0, failing: float = 0.3) -> list[Node]:
    """`count` nodes numbered from 1: three drafts, then children of earlier ones, a share of them `failing`."""
    rng = random.Random(seed)  # noqa: S311 - not for secrets
    made: list[Node] = []
    for number in range(1, count + 1):
        working = [n for n in made if n.result.correct]
        parents: tuple[int, ...] = ()
        if number > 3 and made:
            pool = working or made
            parents = (max(rng.sample(pool, min(2, len(pool))), key=lambda n: n.fitness).number,)
        if number % 11 == 0 and len(working) > 1:
            parents = tuple(n.number for n in rng.sample(working, 2))
        made.append(_node(number, parents, made, rng, failed=rng.random() < failing))
    return made


def write(workspace: Workspace, name: str, made: Sequence[Node], *, problem_: Problem | None = None) -> StudyLog:
    """Store a study of these nodes, the fastest re-measured three times, and read it back."""
    writer = workspace.create_study({
        "name": name, "problem": to_dict(problem_ or problem()), "platform": "cpu", "operator": "template",
        "policy": {"name": "greedy"}, "rules": "strict", "seed": 0, "settings": {"check_trials": 5},
        "versions": {"kernelevolve": "0", "torch": "2.13.0"}, "environment": "env0",
    })
    writer.append("environment", {"id": "env0", "model": "A made-up processor", "cores": 2, "copy_gb_s": 27.0,
                                  "fp32_gflops": 180.0, "isolation": "process"})
    for node in made:
        writer.append_node(node)
    best = max((n for n in made if n.fitness > 0), key=lambda n: n.fitness, default=None)
    if best is not None:
        again = [_interval(best.fitness * wobble) for wobble in (0.99, 1.0, 1.01)]
        writer.append("confirm", {"number": best.number, "intervals": to_dict(again), "timings": []})
    writer.append("end", {"reason": "steps", "steps": len(made), "wall_s": 60.0, "counts": {}, "seconds": {}})
    writer.close()
    return workspace.study(name)


def _node(number: int, parents: tuple[int, ...], made: list[Node], rng: random.Random, *, failed: bool) -> Node:
    status = rng.choice(_FAILURES) if failed else Status.CORRECT
    base = made[parents[0] - 1].fitness or 1.0 if parents else rng.uniform(0.6, 1.3)
    speed = base * rng.uniform(0.9, 1.35)
    policy = Selection(parents, f"node {parents[0]} is the fastest so far" if parents else "draft 1 of 3", "greedy")
    proposal = Proposal(
        source=source(number), language="cpp", operator="template", move=rng.choice(_MOVES) if parents else "draft",
        rationale=f"Process {2 ** rng.randint(1, 5)} elements at a time.", parents=parents, own_kernels=1,
        write_s=0.02, selection=policy,
    )
    if failed:
        result = Result(proposal, status, f"expected float32 (4096, 1024), got {status.value}", stage_s={"build": 0.4})
        return Node(number, result, 0.0, f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z")
    timings = tuple(_timing(name, 2.0 * slow, rng)
                    for name, slow in (("candidate", 1.0), ("eager", speed * 1.3), ("compile", speed)))
    ratios = {"eager": _interval(speed * 1.3), "compile": _interval(speed)}
    result = Result(
        proposal, status, timings=timings, ratios=ratios, noise_floor=0.02, bound_ms=0.8,
        errors=(LeafError(0, "2 (normal)", 2.1e-7, 1.9e-7, 3.8e-7, 4e-6),),
        stage_s={"start": 0.02, "build": 0.45, "check": 0.3, "time": 1.1, "profile": 0.1}, environment="env0",
        diagnosis=Diagnosis("memory", "Moves 33.6 MB in 2.0 ms: 62 % of the copy bandwidth.", {"share": 0.62}),
    )
    return Node(number, result, speed, f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z")


def _interval(value: float) -> Interval:
    return Interval(value, value * 0.98, value * 1.02, 30)


def _timing(name: str, median_ms: float, rng: random.Random) -> Timing:
    samples = tuple(median_ms * (1 + abs(rng.gauss(0, 0.03))) for _ in range(30))
    return Timing(name, samples, tuple(range(30)))
