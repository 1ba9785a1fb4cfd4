"""What a study holds and how it keeps it: journal, tree, evaluator, accounts. The loop itself is in `study.py`."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
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
from kernelevolve.testing import crash

logger = logging.getLogger(__name__)


class Evaluator(Protocol):
    """What a study asks of an evaluator; `kernelevolve.evaluation.Evaluator` is the one."""

    def start(self) -> Any:
        """Measure the baselines; answers a record with `timings`, `again` and `environment`."""

    def evaluate(self, proposal: Proposal) -> Result:
        """One verdict."""

    def confirm(self, *proposals: Proposal) -> list[tuple[Result, ...]]:
        """Each proposal's results in fresh processes."""

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
        self._confirming = False
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

    def learn(self, node: Node, keys: Mapping[str, Any] | None = None) -> None:
        """Take a recorded node, with its keys as the journal has them, into the tree, the policy's statistics and the
        list of what was tried.
        """
        self.tree.add(node)
        self._asked = self._written = None
        self._lost += node.status is Status.LOST
        unfinished = node.status in (Status.LOST, Status.HARNESS_ERROR)
        for key in operators.keys_from(keys, node.proposal):
            # What ended without a verdict may be tried once more; if it does so again, it may be the cause.
            if unfinished and key not in self._unfinished:
                self._unfinished.add(key)
            else:
                self._seen.setdefault(key, node.number)
        self.policy.observe(node)

    def record_lost(self, proposal: Proposal, why: str) -> Node:
        """Record a candidate that did not come to an end."""
        node = lost_node(len(self.tree) + 1, proposal, why)
        keys = operators.stamped_keys(proposal)
        self._writer.append_node(node, keys)
        self.learn(node, keys)
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
            crash.step("session.started")
            self._started = True
            environment = baseline.pop("environment", None)
            if environment:
                self._writer.append("environment", environment)
                baseline["environment"] = environment["id"]
            self._writer.append("baseline", baseline)
        return self._evaluator

    def _on_stage(self, stage: str, seconds: float, status: str) -> None:
        if not self._confirming:  # a `confirm` record holds the stages' outcome
            number = len(self.tree) + 1
            self._writer.append("stage", {"number": number, "stage": stage, "seconds": seconds, "status": status})

    def _measure_again(self, nodes: Sequence[Node]) -> bool:
        """Re-measure nodes in fresh processes and journal that; says whether each of them got an answer."""
        evaluator = self._start_evaluator()
        self._confirming = True
        try:
            with self._accounts.clock("confirm"):
                found = evaluator.confirm(*(node.proposal for node in nodes))
            crash.step("session.confirmed")
        finally:
            self._confirming = False
        answered = [self._learn_again(node, results) for node, results in zip(nodes, found, strict=True)]
        return all(answered)

    def _learn_again(self, node: Node, results: Sequence[Result]) -> bool:
        """Journal one node's re-measurements and take them into the tree."""
        reruns = [r for r in results if r.status is not Status.HARNESS_ERROR]
        if not reruns:
            logger.warning("node %d could not be measured again through no fault of its own", node.number)
            return False
        # What was not correct in a fresh process is worth nothing there.
        intervals = tuple(r.ratio if r.correct and r.ratio else Interval(0.0, 0.0, 0.0, 0) for r in reruns)
        refuted = any(not r.correct for r in reruns)
        again = pooled_by_baseline(reruns)
        self._writer.append("confirm", {
            "number": node.number,
            "baselines": [r.reference for r in reruns],
            "refuted": refuted,
            "intervals": records.to_dict(intervals),
            "confirmed": records.to_dict(again),
            "statuses": [r.status.value for r in reruns],
            "details": [r.detail for r in reruns],
            "timings": [records.to_dict(r.timings) for r in reruns],
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
