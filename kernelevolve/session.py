"""What a study holds and how it keeps it: journal, tree, evaluator, accounts. The loop itself is in `study.py`."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Protocol, Self

from kernelevolve import errors, operators, platforms, records
from kernelevolve.accounts import Accounts, Run
from kernelevolve.operators import Operator
from kernelevolve.records import Interval, Node, Problem, Proposal, Result, Selection, Status
from kernelevolve.replay import apply, lost_node
from kernelevolve.search import Tree
from kernelevolve.search.fitness import pooled_by_baseline
from kernelevolve.search.policies import Policy
from kernelevolve.settings import Settings
from kernelevolve.store import StudyWriter, Workspace

logger = logging.getLogger(__name__)


class Evaluator(Protocol):
    """What a study asks of an evaluator; `kernelevolve.evaluation.Evaluator` is the one."""

    reruns: tuple[Result, ...]
    """The full results behind the last `confirm`."""

    def start(self) -> Any:
        """Measure the baselines; answers a record with `timings`, `again` and `environment`."""

    def evaluate(self, proposal: Proposal) -> Result:
        """One verdict."""

    def confirm(self, proposal: Proposal) -> tuple[Interval, ...]:
        """Ratios to the fastest baseline in fresh processes; 0 for one that was not correct."""

    def close(self) -> None:
        """End every process; `start` begins anew."""


class Session:
    """The state of an open study. It is the only one that adds nodes to it, until `close`."""

    def _open(self, workspace: Workspace, writer: StudyWriter, header: Mapping[str, Any], problem: Problem,
                operator: Operator, policy: Policy, settings: Settings, evaluator: Evaluator) -> None:
        self.workspace, self.problem, self.settings = workspace, problem, settings
        self.name, self.platform = str(header["name"]), str(header["platform"])
        self.rules, self.seed = str(header["rules"]), int(header["seed"])
        self.operator, self.policy = operator, policy
        self.tree = Tree()
        self._writer = writer
        self._evaluator, self._started = evaluator, False
        self._under_way: int | None = None
        self._prepared: Operator | None = None
        self._asked: Selection | None = None
        self._written: Proposal | None = None
        self._seen: dict[str, int] = {}
        self._lost = 0
        self._unfinished: set[str] = set()
        self.runs: list[Run] = []
        self._accounts = Accounts()

    @property
    def _ask(self) -> int:
        """Number of this ask among those that came to an end: lost ones do not shift the choices after a resume."""
        return 1 + len(self.tree) - self._lost

    def learn(self, node: Node) -> None:
        """Take a recorded node into the tree, the policy's statistics and the list of what was tried."""
        self.tree.add(node)
        self._asked = self._written = None
        self._lost += node.status is Status.LOST
        unfinished = node.status in (Status.LOST, Status.HARNESS_ERROR)
        for key in operators.keys(node.proposal):
            # What ended without a verdict may be tried once more; if it does so again, it may be the cause.
            if unfinished and key not in self._unfinished:
                self._unfinished.add(key)
            else:
                self._seen.setdefault(key, node.number)
        self.policy.observe(node)

    def record_lost(self, proposal: Proposal, why: str) -> Node:
        """Record a candidate that did not come to an end."""
        node = lost_node(len(self.tree) + 1, proposal, why)
        self._writer.append_node(node)
        self.learn(node)
        return node

    def _act(self, act: str, **arguments: Any) -> None:
        self._writer.append("act", {"act": act, **arguments})
        apply(self.tree, act, arguments)

    def _prepare(self) -> None:
        if self._prepared is not self.operator:
            with self._accounts.clock("prepare"):
                self.operator.prepare(self.problem, platforms.resolve(self.platform).facts())
            self._prepared = self.operator

    def _make_evaluator(self, problem: Problem, platform: str, rules: str, seed: int, settings: Settings) -> Evaluator:
        from kernelevolve import evaluation, profiling

        return evaluation.Evaluator(problem, platform=platform, rules=rules, seed=seed, settings=settings,
                                    profiler=profiling.profile, on_stage=self._on_stage)

    def _start_evaluator(self) -> Evaluator:
        if not self._started:
            with self._accounts.clock("baseline"):
                baseline = records.to_dict(self._evaluator.start())
            self._started = True
            environment = baseline.pop("environment", None)
            if environment:
                self._writer.append("environment", environment)
                baseline["environment"] = environment["id"]
            self._writer.append("baseline", baseline)
        return self._evaluator

    def _on_stage(self, stage: str, seconds: float, status: str) -> None:
        number = self._under_way or len(self.tree) + 1
        self._writer.append("stage", {"number": number, "stage": stage, "seconds": seconds, "status": status})

    def _measure_again(self, node: Node) -> bool:
        """Re-measure a node in fresh processes and journal it; says whether that gave an answer."""
        evaluator = self._start_evaluator()
        self._under_way = node.number
        try:
            with self._accounts.clock("confirm"):
                intervals = evaluator.confirm(node.proposal)
        finally:
            self._under_way = None
        pairs = [(i, r) for i, r in zip(intervals, evaluator.reruns, strict=True)
                 if r.status is not Status.HARNESS_ERROR]
        if not pairs:
            logger.warning("node %d could not be measured again through no fault of its own", node.number)
            return False
        intervals = tuple(interval for interval, _ in pairs)
        refuted = any(not rerun.correct for _, rerun in pairs)
        again = pooled_by_baseline(rerun for _, rerun in pairs)
        self._writer.append("confirm", {
            "number": node.number,
            "baselines": [rerun.reference for _, rerun in pairs],
            "refuted": refuted,
            "intervals": records.to_dict(intervals),
            "confirmed": records.to_dict(again),
            "statuses": [rerun.status.value for _, rerun in pairs],
            "details": [rerun.detail for _, rerun in pairs],
            "timings": [records.to_dict(rerun.timings) for _, rerun in pairs],
        })
        result = dataclasses.replace(node.result, confirmations=node.result.confirmations + intervals, confirmed=again)
        self.tree.update(dataclasses.replace(node, result=result))
        if refuted:
            self.tree.refuted.add(node.number)
        return True

    def _stop_evaluator(self) -> None:
        if self._started:
            self._evaluator.close()
            self._started = False

    def _break_off(self, why: str, steps: int) -> None:
        """Leave a clean journal behind, as far as the disk allows, when a run ends by an exception."""
        self._stop_evaluator()
        try:
            if self._asked is not None:
                selection = self._asked
                known = Proposal("", "", self.operator.name, parents=selection.parents, selection=selection)
                self.record_lost(self._written or known, f"dropped: {why}")
            self._end(f"ended by {why}", steps)
        except errors.StoreError as error:
            logger.error("the end of the run could not be recorded: %s", error)

    def _end(self, reason: str, steps: int) -> Run:
        accounts, best = self._accounts, self.tree.best
        run = Run(
            study=self.name, reason=reason, steps=steps, wall_s=accounts.wall_s, counts=self.tree.counts(),
            seconds=dict(accounts.seconds), framework_share=accounts.framework_share,
            best=best.number if best else None, ratio=self.tree.score(best.number) if best else 0.0,
        )
        self._writer.append("end", records.to_dict(run))
        self.runs.append(run)
        return run

    def _follow(self, policy: Policy) -> None:
        """Change to a policy, which hears of all nodes so far."""
        for node in self.tree.nodes:
            policy.observe(node)
        self.policy = policy

    def close(self) -> None:
        """End the evaluator's processes and let others lead the study; safe to call twice."""
        self._stop_evaluator()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        best = self.tree.best
        leader = f"best is node {best.number} at {self.tree.score(best.number):.2f}x" if best else "nothing correct yet"
        return f"<Study {self.name!r} of {self.problem.id!r}: {len(self.tree)} nodes, {leader}>"

    def _repr_html_(self) -> str:
        from kernelevolve import show

        return show.study_html(self)
