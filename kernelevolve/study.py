"""The loop: select, recall, write, evaluate, record. All that the package does hangs on it.

`Study("cpu/rms_norm").run(steps=24)` searches; `study.best.source` is what it found.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelevolve import errors, operators, platforms, problems, records
from kernelevolve.accounts import Accounts, Run
from kernelevolve.interrupt import graceful
from kernelevolve.operators import Operator
from kernelevolve.operators.hand import Hand
from kernelevolve.records import Context, Node, Problem, Proposal, Result, Selection, Status
from kernelevolve.replay import replay
from kernelevolve.search import Spent, Steps, StopRule, Target, WallTime, fitness, history, policies
from kernelevolve.search.policies import Policy
from kernelevolve.search.stop import HarnessFailing
from kernelevolve.session import Evaluator, Session
from kernelevolve.settings import Settings
from kernelevolve.store import Workspace
from kernelevolve.store.journal import utc_now
from kernelevolve.survey import Survey, survey
from kernelevolve.testing import crash
from kernelevolve.versions import versions

logger = logging.getLogger(__name__)
DEFAULT_STEPS = 24
FINALISTS = 3
"""How many of the fastest nodes are measured again in fresh processes at the end of a run."""


class Study(Session):
    """A search for a faster kernel for one problem. Everything it does is in the workspace's journal when it returns.

    Args:
        problem: A checked problem, or what `problems.load` takes: "cpu/rms_norm", "kernelbench/1/23", a path.
        name: A new name; by default the problem's id and a number.
        platform: Name of a platform, or "auto" for the best one of this machine.
        operator: Who writes candidates: a name or an `Operator`.
        policy: Who selects: a name or a `Policy`.
        rules: What correct means: "strict", "kernelbench-v0.1", "kernelbench-main".
        seed: Fixes every choice: the same seed and the same answers give the same tree.
        workspace: Where it is stored: a folder or a `Workspace`.
        settings: Limits and budgets of an evaluation.
        evaluator: One to use in place of the package's own (tests, replays).
    """

    def __init__(
        self,
        problem: Problem | str | Path,
        *,
        name: str | None = None,
        platform: str = "auto",
        operator: str | Operator = "template",
        policy: str | Policy = "greedy",
        rules: str = "strict",
        seed: int = 0,
        workspace: str | Path | Workspace | None = None,
        settings: Settings | None = None,
        evaluator: Evaluator | None = None,
    ) -> None:
        workspace = Workspace(workspace)
        operator, policy = operators.create(operator), policies.create(policy)
        settings, platform = settings or Settings(), platforms.resolve(platform).name
        problem = problem if isinstance(problem, Problem) else problems.load(problem)
        evaluator = evaluator or self._make_evaluator(problem, platform, rules, seed, settings)
        header = {
            "name": name or workspace.reserve_name(problem.id.replace("/", "-")),
            "problem": records.to_dict(problem),
            "platform": platform,
            "operator": operator.name,
            "policy": {"name": policy.name, "parameters": policy.parameters()},
            "rules": rules,
            "seed": seed,
            "settings": records.to_dict(settings),
            "versions": versions(),
        }
        self._open(workspace, workspace.create_study(header), header, problem, operator, policy, settings, evaluator)

    # ---- the five stages ----

    def select(self) -> Selection:
        """Which nodes to expand next, and why. Asked again before anything is recorded, it answers the same."""
        with self._accounts.clock("select"):
            selection = self.policy.select(self.tree, random.Random(f"{self.seed}/{self._ask}/select"))  # noqa: S311
            if selection != self._asked:
                self._writer.append("ask", {"number": len(self.tree) + 1, "selection": records.to_dict(selection)})
                self._asked = selection
        return selection

    def recall(self, selection: Selection) -> Context:
        """What the writer may know: parents, the history that memory admits, the diagnosis, hints, what was tried."""
        with self._accounts.clock("recall"):
            parents = tuple(self.tree.node(p) for p in selection.parents)
            seed = hashlib.sha256(f"{self.seed}/{self._ask}/write".encode()).digest()[:6]
            return Context(
                selection=selection,
                parents=parents,
                history=history(self.tree, selection),
                diagnosis=parents[0].result.diagnosis if parents else None,
                hints=tuple(h for n in (0, *selection.parents) for h in self.tree.hints.get(n, ())),
                seed=int.from_bytes(seed, "big"),
                tried=tuple(self._seen),
            )

    def write(self, context: Context) -> Proposal:
        """A candidate, or the reason for none. Raises NotCoveredError when the operator can do nothing here."""
        self._prepare()
        began = time.perf_counter()
        with self._accounts.clock("write"):
            try:
                proposal = self.operator.write(context)
            except errors.KernelEvolveError:
                raise
            except Exception as error:  # the writer's own bug is a node too, or a search would end with it
                logger.exception("operator %s failed", self.operator.name)
                proposal = Proposal("", "", self.operator.name, failure=Status.HARNESS_ERROR,
                                    failure_detail=f"operator {self.operator.name!r} raised {error!r}")
            proposal = dataclasses.replace(proposal, selection=context.selection, parents=context.selection.parents,
                                           write_s=proposal.write_s or time.perf_counter() - began)
            self._writer.append_proposal(len(self.tree) + 1, proposal)
            self._written = proposal
        return proposal

    def evaluate(self, proposal: Proposal) -> Result:
        """One verdict: built, checked, timed and profiled; what is no candidate or a known one is not run at all."""
        blank = Result(proposal, Status.NO_CODE, rules=self.rules, platform=self.platform)
        if proposal.failure is not None or not proposal.source.strip():
            status = proposal.failure or Status.NO_CODE
            detail = proposal.failure_detail or "the proposal holds no source"
            return dataclasses.replace(blank, status=status, detail=detail)
        earlier = self._seen.get(operators.source_key(proposal.source))
        if earlier is not None:
            detail = f"the same program as node {earlier}, which was {self.tree.node(earlier).status.value}"
            return dataclasses.replace(blank, status=Status.DUPLICATE, detail=detail, duplicate_of=earlier)
        evaluator = self._start_evaluator()
        with self._accounts.clock("evaluate"):
            try:
                result: Result = evaluator.evaluate(proposal)
                crash.step("session.answered")
            except errors.MissingDependencyError:
                raise  # no candidate could ever pass: the engineer has to install something
            except Exception as error:  # our fault, never the candidate's: it gets its own status
                logger.exception("evaluation failed")
                detail = f"{type(error).__name__}: {error}"
                result = dataclasses.replace(blank, status=Status.HARNESS_ERROR, detail=detail)
        self._accounts.split("evaluate", result.stage_s)
        return result

    def record(self, result: Result) -> Node:
        """Add the node; it is durable when this returns. The same result recorded twice is one node."""
        if len(self.tree) and self.tree.node(len(self.tree)).result is result:
            return self.tree.node(len(self.tree))
        with self._accounts.clock("record"):
            node = Node(len(self.tree) + 1, result, fitness(result), utc_now())
            keys = operators.stamped_keys(node.proposal)
            self._writer.append_node(node, keys)
            self.learn(node, keys)
        return node

    # ---- the loop ----

    def step(self) -> Node:
        """Select, recall, write, evaluate, record."""
        selection = self.select()
        context = self.recall(selection)
        proposal = self.write(context)
        result = self.evaluate(proposal)
        return self.record(result)

    def run(
        self,
        steps: int | None = None,
        *,
        wall_s: float | None = None,
        target: float | None = None,
        stop: StopRule | None = None,
        progress: Callable[[Node], None] | None = None,
        confirm: bool = True,
    ) -> Run:
        """Step until a rule says stop; then measure the finalists again in fresh processes.

        Ctrl-C ends the run after the candidate under way; a second one drops it (its node becomes `lost`).

        Args:
            steps: Steps of this run. Without any rule: 24.
            wall_s: Seconds of this run.
            target: Ratio to the reference that is enough.
            stop: A rule of `search.stop`, such as `Stall(10) | BoundReached()`.
            progress: Called with every node as soon as it is recorded.
            confirm: Whether to measure the finalists again; leave it to `confirm` when more runs follow.
        """
        rule = _combine(steps, wall_s, target, stop)
        self._accounts = accounts = Accounts()
        done = 0
        with graceful() as wish:
            try:
                self._prepare()  # what cannot work at all fails here, before anything is asked for
                self._start_evaluator()
                while (reason := rule.reason(self.tree, Spent(done, accounts.wall_s))) is None and not wish:
                    node = self.step()
                    done += 1
                    if progress:
                        progress(node)
                for finalists in self._unconfirmed(FINALISTS if confirm else 0):
                    if wish or not self._measure_again(finalists):
                        break
            except BaseException as error:
                self._break_off(f"{type(error).__name__}: {error}".rstrip(": "), done)
                raise
            return self._end(reason or "interrupted", done)

    def confirm(self, *numbers: int) -> list[Node]:
        """Measure correct nodes again in fresh processes, side by side; answers them with their `confirmations`.

        Raises StudyError for a node that was never timed, WorkerError when the measurement failed by our own fault.
        """
        nodes = [self.tree.node(number) for number in numbers]
        for node in nodes:
            if node.fitness <= 0:
                raise errors.StudyError(
                    f"node {node.number} is {node.status.value}: only a correct, timed one can be confirmed"
                )
        if nodes and not self._measure_again(nodes):
            raise errors.WorkerError("a node could not be measured again, through no fault of its own")
        return [self.tree.node(number) for number in numbers]

    def _unconfirmed(self, finalists: int) -> Iterator[list[Node]]:
        """The fastest nodes, then whoever leads, until the leader is one that was measured again: the best of many
        noisy numbers is too good.
        """
        if first := [n for n in self.tree.ranked()[:finalists] if not n.result.confirmations]:
            yield first
        for _ in range(finalists):
            if (leader := self.tree.best) and not leader.result.confirmations:
                yield [leader]

    def survey(self, number: int, rules: str = "all") -> Survey:
        """One node's source run again and judged under every rule set; nothing is recorded."""
        return survey(self.problem, self.tree.node(number).proposal, title=f"{self.name}, node {number}",
                      platform=self.platform, settings=self.settings, seed=self.seed, rules=rules)

    # ---- the engineer's hand ----

    def submit(self, source: str | Path, parent: int | None = None) -> Node:
        """Evaluate and record the engineer's own kernel, a candidate like any other; a Path is read."""
        source = source.read_text() if isinstance(source, Path) else source
        parents = () if parent is None else (self.tree.node(parent).number,)
        proposal = Hand().propose(source, parents)
        self._act("submit", number=len(self.tree) + 1, parent=parent)
        self._writer.append_proposal(len(self.tree) + 1, proposal)
        asked = self._asked
        node = self.record(self.evaluate(proposal))
        self._asked = asked
        return node

    def pin(self, number: int, *, on: bool = True) -> None:
        """Expand this node before all others (or no longer)."""
        self._act("pin", number=self.tree.node(number).number, on=on)

    def veto(self, number: int, *, on: bool = True) -> None:
        """Neither expand this node nor call it best (or allow it again)."""
        self._act("veto", number=self.tree.node(number).number, on=on)

    def hint(self, number: int, text: str) -> None:
        """Tell the writer something when it next expands this node; number 0 is said always."""
        self._act("hint", number=number and self.tree.node(number).number, text=text)

    def use(self, *, policy: str | Policy | None = None, operator: str | Operator | None = None) -> None:
        """Go on with another policy or operator."""
        made = policies.create(policy) if policy is not None else None
        writer = operators.create(operator) if operator is not None else None
        described = {"policy": {"name": made.name, "parameters": made.parameters()}} if made else {}
        self._act("use", **described, **({"operator": writer.name} if writer else {}))
        if made:
            self._follow(made)
        self.operator = writer or self.operator

    # ---- what came of it ----

    @property
    def best(self) -> Node:
        """The fastest correct node. Raises StudyError, with the counts by status, while there is none."""
        best = self.tree.best
        if best is None:
            counts = ", ".join(f"{n} {status}" for status, n in self.tree.counts().items()) or "no nodes"
            raise errors.StudyError(
                f"study {self.name!r} has no correct, timed kernel yet ({counts}): run more steps, "
                "or read the nodes' details with `kernelevolve show`"
            )
        return best

    @property
    def cost(self) -> dict[str, float]:
        """What the study used so far: seconds of its runs, the framework's share of them, tokens and dollars."""
        wall_s = sum(r.wall_s for r in self.runs)
        proposals = [n.proposal for n in self.tree.nodes]
        return {
            "steps": len(self.tree),
            "wall_s": wall_s,
            "framework_share": sum(r.framework_share * r.wall_s for r in self.runs) / wall_s if wall_s else 0.0,
            "tokens_in": sum(p.tokens_in for p in proposals),
            "tokens_out": sum(p.tokens_out for p in proposals),
            "cost_usd": sum(p.cost_usd for p in proposals),
        }

    @classmethod
    def open_or_create(cls, problem: Problem | str | Path, *, name: str,
                       workspace: str | Path | Workspace | None = None, **choices: Any) -> Study:
        """The study of that name, resumed when it exists (as it was set up then), else begun with these choices."""
        if name in Workspace(workspace).studies():
            # Names stand in the journal; an instance of a class that is not registered has to be given again.
            given = ("operator", "policy", "evaluator")
            known = {k: v for k, v in choices.items() if k in given and not isinstance(v, str)}
            return cls.resume(name, workspace=workspace, **known)
        return cls(problem, name=name, workspace=workspace, **choices)

    @classmethod
    def resume(
        cls,
        name: str,
        *,
        workspace: str | Path | Workspace | None = None,
        operator: str | Operator | None = None,
        policy: str | Policy | None = None,
        evaluator: Evaluator | None = None,
    ) -> Study:
        """Go on with a study from its journal. What was under way when it ended becomes a node with status `lost`.

        Args:
            name: The study's name.
            workspace: Where it is.
            operator: Needed when the study used one that has no registered name.
            policy: Likewise.
            evaluator: As for a new study.
        """
        workspace = Workspace(workspace)
        writer = workspace.open_study(name)  # first the lead, so that nobody adds to what is read next
        try:
            log = workspace.study(name)
            writer.begin_after(log.last_time)
            if damage := log.state_damage():
                logger.warning("%s; the nodes concerned are marked lost", damage)
            used = {k: v for act in log.acts if act.name == "use" for k, v in act.arguments.items()}
            named = used.get("policy", log.header["policy"])
            header = log.header
            settings = records.from_dict(Settings, header["settings"])
            study = cls.__new__(cls)
            study._open(
                workspace, writer, header, log.problem,
                operators.create(operator or used.get("operator", header["operator"])),
                policies.create(policy) if policy else policies.create(named["name"], **named["parameters"]),
                settings,
                evaluator or study._make_evaluator(log.problem, header["platform"], header["rules"], header["seed"],
                                                   settings),
            )
            replay(study, log)
        except BaseException:
            writer.close()
            raise
        return study



def _combine(steps: int | None, wall_s: float | None, target: float | None, stop: StopRule | None) -> StopRule:
    """One rule of all that were given; 24 steps when none was."""
    rule: StopRule = HarnessFailing()
    given = [
        Steps(steps) if steps is not None else None,
        WallTime(wall_s) if wall_s is not None else None,
        Target(target) if target is not None else None,
        stop,
    ]
    for one in [r for r in given if r is not None] or [Steps(DEFAULT_STEPS)]:
        rule = rule | one
    return rule
