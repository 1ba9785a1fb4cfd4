"""A search to be killed: a writer and an evaluator that answer at once, by rule, around the real loop and store.

    python -m kernelevolve.testing.searching WORKSPACE NAME HISTORY [--steps N] [--sync-every K]

Everything it is told by the study goes to the file HISTORY (see `history.py`). Run again, it goes on. No number in
such a study was measured.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from typing import Any

from kernelevolve.operators import Operator
from kernelevolve.records import Context, Interval, Proposal, Result, Status, Timing
from kernelevolve.study import Study
from kernelevolve.testing import synthetic
from kernelevolve.testing.history import History, digest

ROUNDS = 10


class Writer(Operator):
    """Writes a program that differs for each seed of a context."""

    name = "made-up"

    def write(self, context: Context) -> Proposal:
        """A candidate that nobody runs."""
        number = random.Random(context.seed).randrange(10**9)  # noqa: S311 - not for secrets
        return Proposal(synthetic.source(number), "cpp", self.name, rationale=f"try {number}")


class Judge:
    """Answers by the source alone: a third fails, the others get samples and the ratios that follow from them.

    Args:
        delay_s: How long it takes over each.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s

    def start(self) -> dict[str, Any]:
        """Baselines that were never measured."""
        eager = _timing("eager", 2.0, random.Random(0))  # noqa: S311 - not for secrets
        return {"timings": [eager], "again": eager, "noise_floor": 0.01, "environment": {"id": "made-up", "cores": 1}}

    def evaluate(self, proposal: Proposal) -> Result:
        """A verdict that depends on the source."""
        time.sleep(self.delay_s)
        rng = random.Random(proposal.source)  # noqa: S311 - not for secrets
        if rng.random() < 1 / 3:
            return Result(proposal, Status.CRASHED, "made to fail", log="signal 11\n", stage_s={"build": 0.4})
        own = rng.uniform(0.5, 3.0)
        timings = (_timing("candidate", own, rng), _timing("eager", 2.0, rng))
        ratio = Interval(2.0 / own, 2.0 / own, 2.0 / own, ROUNDS)
        return Result(proposal, Status.CORRECT, timings=timings, ratios={"eager": ratio},
                      stage_s={"build": 0.4, "check": 0.1}, profile={"static": {"fma": 3}}, environment="made-up")

    def confirm(self, *proposals: Proposal) -> list[tuple[Result, ...]]:
        """The same verdict three times."""
        return [(self.evaluate(p),) * 3 for p in proposals]

    def close(self) -> None:
        """Nothing to end."""


def search(workspace: Path, name: str, history: Path, *, steps: int, sync_every: int = 0, delay_s: float = 0.0,
           speak_after: int = 0) -> int:
    """Begin the study or go on with it, step and write the history; answers the number of its nodes.

    Args:
        workspace: Folder of the workspace.
        name: Name of the study.
        history: File of the history.
        steps: How many steps to do; then a run of one more step, whose finalists are confirmed.
        sync_every: Bring the tables up to date after every so many steps; 0 is never.
        delay_s: How long an evaluation takes.
        speak_after: After how many steps to give a hint; 0 is never.
    """
    told, began = History(history), time.perf_counter()
    with Study.open_or_create(synthetic.problem(), name=name, workspace=workspace, platform="cpu", operator=Writer(),
                              evaluator=Judge(delay_s)) as study:
        told.ok("opened", f"{len(study.tree)} {time.perf_counter() - began:.6f}")  # with how many nodes, after how long
        for done in range(1, steps + 1):
            told.invoke(f"node {len(study.tree) + 1}")
            node = study.step()
            told.ok(f"node {node.number}", digest(node))
            if done == speak_after:
                hint = f"said-after-{node.number}"
                told.invoke(f"act {hint}")
                study.hint(0, hint)
                told.ok(f"act {hint}")
            if sync_every and done % sync_every == 0:
                study.workspace.sync()
        study.run(1, progress=lambda n: told.ok(f"node {n.number}", digest(n)))
        if sync_every:
            study.workspace.rebuild()
        return len(study.tree)


def _timing(name: str, median_ms: float, rng: random.Random) -> Timing:
    return Timing(name, tuple(median_ms * rng.uniform(0.97, 1.03) for _ in range(ROUNDS)), tuple(range(ROUNDS)))


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("name")
    parser.add_argument("history", type=Path)
    parser.add_argument("--steps", type=int, default=10**6)
    parser.add_argument("--sync-every", type=int, default=0)
    parser.add_argument("--delay-s", type=float, default=0.0)
    args = parser.parse_args()
    search(args.workspace, args.name, args.history, steps=args.steps, sync_every=args.sync_every, delay_s=args.delay_s)


if __name__ == "__main__":
    main()
