"""Is it right, how fast is it: the one object that the loop asks.

It runs in the user's process and executes nothing there: it starts the judge, one process per baseline and a fresh
one per candidate, hands the candidate's channel to the judge, and watches. See `judge.py` for what is right,
`session.py` for how time is taken, `candidate.py` for limits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelevolve import languages, platforms
from kernelevolve.errors import KernelEvolveError
from kernelevolve.evaluation import isolation
from kernelevolve.evaluation.baseline import Baseline, physical_bound_ms
from kernelevolve.evaluation.bench import Bench, FaultError
from kernelevolve.evaluation.candidate import Candidate, EndedError, SilentError
from kernelevolve.evaluation.statistics import noise_floor, ratio
from kernelevolve.evaluation.verdict import Verdict
from kernelevolve.records import Diagnosis, LeafError, Problem, Proposal, Result, Status, Timing, from_dict
from kernelevolve.settings import Settings, rule_set

log = logging.getLogger(__name__)

Profiler = Callable[[Path, Result, dict[str, Any], Problem], tuple[dict[str, Any], Diagnosis]]
OnStage = Callable[[str, float, str], None]

SUSPECT_FACTOR = 0.9
"""Faster than this share of the physical bound is not believed: the peaks themselves are measured to a few percent."""
AFFORDABLE_S = 20.0
"""A baseline that starts within this is started afresh for each confirmation."""


class Evaluator:
    """Evaluates candidates for one problem on one platform. Use as a context manager, or call `close`.

    Args:
        problem: The checked problem.
        platform: Name of a platform, or "auto" for the best of this machine.
        rules: Rule set: "strict", "kernelbench-v0.1" or "kernelbench-main".
        seed: Seed of the timed models' weights. Seeds of the correctness trials are secret and recorded afterwards.
        scratch: Where private folders are made; the system's temporary folder by default.
        settings: Limits and budgets.
        case: Which of the problem's CASES to use; "tuned" (or the file's own sizes) by default.
        profiler: Called after timing, while the build folder exists: (build_dir, result, facts, problem).
        on_stage: Told when a stage ends: (stage, seconds, status).
    """

    def __init__(self, problem: Problem, *, platform: str = "auto", rules: str = "strict", seed: int = 0,
                 scratch: Path | None = None, settings: Settings | None = None, case: str | None = None,
                 profiler: Profiler | None = None, on_stage: OnStage | None = None) -> None:
        self.problem, self.rules, self.seed, self.case = problem, rule_set(rules), seed, case
        self.platform = platforms.resolve(platform)
        self.settings = settings or Settings()
        isolation.get(self.settings.isolation)
        self.profiler, self.on_stage = profiler, on_stage
        self.threads = self.settings.threads or self.platform.threads
        self.baseline: Baseline | None = None
        self.facts: dict[str, Any] = {}
        self._peaks_again = False
        self._scratch = scratch
        self._root: Path | None = None
        self._bench: Bench | None = None

    def start(self) -> Baseline:
        """Bring up the judge and the baselines, and measure them. Raises ProblemError for an unusable problem."""
        if self.baseline is not None:
            return self.baseline
        begin = time.monotonic()
        self.facts = self.platform.facts()
        if self._scratch is not None:
            self._scratch.mkdir(parents=True, exist_ok=True)
        self._root = Path(tempfile.mkdtemp(prefix="kernelevolve-", dir=self._scratch))
        self._bench = Bench(self.problem, root=self._root, platform=self.platform, rules=self.rules, seed=self.seed,
                            settings=self.settings, threads=self.threads, case=self.case)
        try:
            self._bench.open()
            timings, again = self._bench.measure(self.settings.baseline_time_s)
        except BaseException:
            self.close()
            raise
        bound = self._bound_ms()
        environment = self.platform.environment({
            **self.facts, "threads": self.threads, "isolation": self.settings.isolation,
            "flush_bytes": self._bench.flush_bytes, "omp_proc_bind": os.environ.get("OMP_PROC_BIND", ""),
        })
        eager = next(t for t in timings if t.name == "eager")
        self.baseline = Baseline(timings, again, noise_floor(eager, again), bound, environment,
                                 tuple(self._bench.notes), time.monotonic() - begin)
        return self.baseline

    def evaluate(self, proposal: Proposal) -> Result:
        """Build, check, time and profile one proposal in a fresh process. A failure of its own is a status.

        Raises MissingDependencyError when its language needs a tool that this machine lacks.
        """
        if proposal.failure is not None:
            return self._result(proposal, Verdict(proposal.failure, proposal.failure_detail))
        if not proposal.source.strip():
            return self._result(proposal, Verdict(Status.NO_CODE, "the proposal holds no source"))
        self.start()
        reason = ""
        for _ in range(2):
            try:
                self._revive()
                return self._evaluate(proposal)
            except FaultError as fault:
                reason = str(fault)
                log.warning("evaluation failed through no fault of the candidate: %s", reason)
        return self._result(proposal, Verdict(Status.HARNESS_ERROR, reason))

    def confirm(self, *proposals: Proposal, n: int = 3) -> list[tuple[Result, ...]]:
        """Measure again `n` times, each in fresh candidate and baseline processes with new secret inputs.

        Returns the `n` results of each proposal. A baseline that takes long to start (torch.compile on a cold cache)
        keeps its process; within one repetition the proposals share the baselines' processes.
        """
        self.start()
        found: list[tuple[Result, ...]] = []
        for _ in range(n):
            assert self._bench is not None
            try:
                self._revive()
                self._bench.renew(AFFORDABLE_S)
            except (FaultError, KernelEvolveError) as error:
                log.warning("a baseline is not renewed: %s", error)
            found.append(tuple(self.evaluate(p) for p in proposals))
        return list(zip(*found, strict=True))

    def close(self) -> None:
        """End every process and remove the scratch folder."""
        if self._bench is not None:
            self._bench.close()
            self._bench = None
        if self._root is not None and not self.settings.keep:
            shutil.rmtree(self._root, ignore_errors=True)
        self._root = None
        self.baseline = None

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bound_ms(self) -> float:
        assert self._bench is not None
        return physical_bound_ms(self.problem, self.facts, threads=self.threads,
                                 working_set_bytes=self._bench.info["working_set_bytes"])

    def _revive(self) -> None:
        assert self._bench is not None
        try:
            self._bench.revive()
        except KernelEvolveError as error:
            raise FaultError(f"the judge or a baseline does not start again: {error}") from error

    def _evaluate(self, proposal: Proposal) -> Result:
        assert self._bench is not None
        assert self._root is not None
        bench = self._bench
        seconds: dict[str, float] = {}
        language = proposal.language if proposal.language in languages.LANGUAGES else languages.detect(proposal.source)
        languages.get(language).toolchain()
        candidate = Candidate(proposal.source, language, self.settings, self.threads, self._memory_bytes(), self._root,
                              self.platform.name)
        found: dict[str, Any] = {}
        verdict = Verdict(Status.CORRECT)
        result: Result | None = None
        try:
            with self._stage("start", seconds):
                candidate.start()
                bench.prepare()
            with self._stage("build", seconds):
                candidate.build()
            with self._stage("check", seconds):
                found = bench.check(candidate)
                self._conclude(found)
            with self.platform.timing_lock(self.settings.lock_timeout_s) as waited, self._stage("time", seconds):
                seconds["wait"] = waited
                timed = bench.time(candidate)
                found |= {"timings": timed["timings"], "errors": _merge(found["errors"], timed["errors"])}
                self._conclude(timed)
            self._believe(timed)
            result = self._result(proposal, verdict, found, seconds)
            if self.profiler is not None:
                with self._stage("profile", seconds):
                    result = self._profile(candidate.build_dir, result)
        except EndedError as ended:
            verdict = ended.verdict
        except SilentError as silent:
            bench.judge_lost()
            raise FaultError(str(silent)) from silent
        except BaseException:
            bench.judge_lost()  # an interrupt: its answer is still to come, and must not be taken for the next one's
            raise
        finally:
            printed = candidate.end()
            bench.forget(candidate)
            candidate.close()
        if result is None:
            result = self._result(proposal, verdict, found, seconds)
        return dataclasses.replace(result, log=printed, stage_s=dict(seconds))

    def _conclude(self, found: Mapping[str, Any]) -> None:
        if found["status"] != Status.CORRECT.value:
            raise EndedError(Verdict(Status(found["status"]), found["detail"]))

    def _believe(self, timed: Mapping[str, Any]) -> None:
        """Quarantine what is faster than the machine can be, once its peaks have been measured a second time."""
        assert self.baseline is not None
        mine = next(from_dict(Timing, t) for t in timed["timings"] if t["name"] == "candidate")
        if mine.median_ms >= SUSPECT_FACTOR * self.baseline.bound_ms:
            return
        if not self._peaks_again:
            self._peaks_again = True
            self.facts = self.platform.facts(again=True)
            self.baseline = dataclasses.replace(self.baseline, bound_ms=self._bound_ms())
        bound = self.baseline.bound_ms
        if mine.median_ms < SUSPECT_FACTOR * bound:
            raise EndedError(Verdict(Status.SUSPECT, f"{mine.median_ms:.4g} ms is faster than the physical bound of "
                                                     f"{bound:.4g} ms that this machine's measured peaks allow"))

    def _profile(self, build_dir: Path, result: Result) -> Result:
        assert self.profiler is not None
        try:
            profile, diagnosis = self.profiler(build_dir, result, self.facts, self.problem)
        except Exception as error:  # a profile is an extra: its failure is told, the measurement stands
            log.warning("the profiler failed: %s", error, exc_info=True)
            return dataclasses.replace(result, profile={"error": f"{type(error).__name__}: {error}"})
        return dataclasses.replace(result, profile=profile, diagnosis=diagnosis)

    def _result(self, proposal: Proposal, verdict: Verdict, found: Mapping[str, Any] | None = None,
                seconds: Mapping[str, float] | None = None) -> Result:
        found = found or {}
        timings = tuple(from_dict(Timing, t) for t in found.get("timings", ()))
        mine = next((t for t in timings if t.name == "candidate"), None)
        ratios = {t.name: ratio(t, mine) for t in timings if mine is not None and t is not mine}
        baseline = self.baseline
        return Result(
            proposal=proposal, status=verdict.status, detail=verdict.detail, rules=self.rules,
            errors=tuple(from_dict(LeafError, e) for e in found.get("errors", ())), timings=timings, ratios=ratios,
            noise_floor=baseline.noise_floor if baseline else 0.0, bound_ms=baseline.bound_ms if baseline else 0.0,
            stage_s=dict(seconds or {}), platform=self.platform.name, isolation=self.settings.isolation,
            environment=baseline.environment["id"] if baseline else "",
        )

    @contextlib.contextmanager
    def _stage(self, name: str, seconds: dict[str, float]) -> Iterator[None]:
        begin, status = time.monotonic(), "ok"
        try:
            yield
        except EndedError as ended:
            status = ended.verdict.status.value
            raise
        except BaseException:
            status = Status.HARNESS_ERROR.value
            raise
        finally:
            seconds[name] = time.monotonic() - begin
            if self.on_stage is not None:
                self.on_stage(name, seconds[name], status)

    def _memory_bytes(self) -> int:
        if self.settings.memory_bytes:
            return self.settings.memory_bytes
        return max(4 * 2**30, int(self.facts.get("memory_bytes", 0)) // 2)


def _merge(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per leaf the worse of two errors: a failed one, or the one nearer to its limit."""
    found: dict[int, dict[str, Any]] = {}
    for e in [*a, *b]:
        old = found.get(e["leaf"])
        if old is None or (not e["passed"], e["error"]) > (not old["passed"], old["error"]):
            found[e["leaf"]] = e
    return [found[leaf] for leaf in sorted(found)]
