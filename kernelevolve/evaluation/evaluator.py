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
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kernelevolve import languages, platforms, workers
from kernelevolve.errors import KernelEvolveError
from kernelevolve.evaluation import harness, honesty, isolation
from kernelevolve.evaluation.baseline import Baseline, physical_bound_ms
from kernelevolve.evaluation.bench import Bench, FaultError
from kernelevolve.evaluation.candidate import Candidate, EndedError, SilentError, most_tasks
from kernelevolve.evaluation.conditions import flags
from kernelevolve.evaluation.statistics import noise_floor, ratio
from kernelevolve.evaluation.verdict import Verdict
from kernelevolve.records import Diagnosis, LeafError, Problem, Proposal, Result, Status, Timing, from_dict
from kernelevolve.settings import RULE_SETS, Settings, rule_set
from kernelevolve.versions import versions

log = logging.getLogger(__name__)

T = TypeVar("T")
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
        settings = settings or Settings()
        self.settings = dataclasses.replace(settings, isolation=isolation.get(settings.isolation).name)
        self.profiler, self.on_stage = profiler, on_stage
        self.threads = self.settings.threads or self.platform.threads
        self.baseline: Baseline | None = None
        self.facts: dict[str, Any] = {}
        self._peaks_again = False
        self._scratch = scratch
        self._root: Path | None = None
        """Folder that holds the candidates' own; what they must not see is kept in another, `_desk`."""
        self._desk: Path | None = None
        self._enclosure: isolation.Enclosure | None = None
        self._bench: Bench | None = None

    def start(self) -> Baseline:
        """Bring up the judge and the baselines, and measure them. Raises ProblemError for an unusable problem."""
        if self.baseline is not None:
            return self.baseline
        begin = time.monotonic()
        self.facts = self.platform.facts()
        workers.hide()
        level = isolation.get(self.settings.isolation)
        alone = self._scratch is not None or self.settings.keep
        self._root, self._desk = self._folder(None if alone else level.shared_folder()), self._folder()
        try:
            self._bench = Bench(self.problem, root=self._desk, platform=self.platform, rules=self.rules, seed=self.seed,
                                settings=self.settings, threads=self.threads, case=self.case)
            memory = self._memory_bytes()
            self._enclosure = level.open(isolation.Room(
                root=self._root, memory_bytes=memory, tasks=most_tasks(self.settings, self.threads),
                memory_files_bytes=min(self.settings.folder_bytes, memory // 4)))
            self._bench.open()
            self._enclosure.await_ready()  # it must not still be starting while baselines are timed
            before = self.platform.conditions(self._bench.pids())
            timings, again = self._bench.measure(self.settings.baseline_time_s)
            after = self.platform.conditions(self._bench.pids())
        except BaseException:
            self.close()
            raise
        bound = self._bound_ms()
        environment = self.platform.environment({
            **self.facts, "threads": self.threads, "isolation": self.settings.isolation,
            "flush_bytes": self._bench.flush_bytes, "omp_proc_bind": os.environ.get("OMP_PROC_BIND", ""),
            "flags": self._bench.flags["eager"], "versions": versions(), "harness": harness.version(),
        })
        eager = next(t for t in timings if t.name == "eager")
        floor = noise_floor(eager, again)
        self.baseline = Baseline(timings, again, floor, bound, environment, tuple(self._bench.notes),
                                 time.monotonic() - begin, flags(before, after, timings, floor))
        return self.baseline

    def evaluate(self, proposal: Proposal) -> Result:
        """Build, check, time and profile one proposal in a fresh process. A failure of its own is a status.

        Raises MissingDependencyError when its language needs a tool that this machine lacks.
        """
        if proposal.failure is not None:
            return self._result(proposal, Verdict(proposal.failure, proposal.failure_detail))
        if not proposal.source.strip():
            return self._result(proposal, Verdict(Status.NO_CODE, "the proposal holds no source"))
        return self._twice(lambda: self._evaluate(proposal),
                           lambda reason: self._result(proposal, Verdict(Status.HARNESS_ERROR, reason)))

    def survey(self, proposal: Proposal) -> dict[str, Result]:
        """Judge the same outputs of one fresh process under every rule set, by name; nothing is timed."""
        if proposal.failure is not None or not proposal.source.strip():
            one = self.evaluate(proposal)
            return {name: dataclasses.replace(one, rules=name) for name in RULE_SETS}
        return self._twice(lambda: self._survey(proposal), lambda reason: {
            name: self._result(proposal, Verdict(Status.HARNESS_ERROR, reason), rules=name) for name in RULE_SETS})

    def _twice(self, attempt: Callable[[], T], give_up: Callable[[str], T]) -> T:
        self.start()
        reason = ""
        for _ in range(2):
            try:
                self._revive()
                return attempt()
            except FaultError as fault:
                reason = str(fault)
                log.warning("evaluation failed through no fault of the candidate: %s", reason)
        return give_up(reason)

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
        if self._enclosure is not None:
            self._enclosure.close()
            self._enclosure = None
        for folder in (self._root, self._desk):
            if folder is not None and not self.settings.keep:
                workers.remove(folder)
                workers.release(folder)
        self._root = self._desk = None
        self.baseline = None

    def _folder(self, parent: Path | None = None) -> Path:
        """A private folder, which goes with this process if `close` does not remove it before."""
        if self._scratch is not None:
            self._scratch.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix="kernelevolve-", dir=parent or self._scratch))
        if not self.settings.keep:
            workers.guard(path)
        return path

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
        assert self.baseline is not None
        bench, floor = self._bench, self.baseline.noise_floor
        attempt = _Attempt()
        found: dict[str, Any] = {}
        result: Result | None = None

        def work(candidate: Candidate) -> None:
            nonlocal result
            seconds = attempt.seconds
            with self._stage("check", seconds):
                found.update(bench.check(candidate))
                self._conclude(found)
            with self.platform.timing_lock(self.settings.lock_timeout_s) as waited, self._stage("time", seconds):
                seconds["wait"] = waited
                pids = bench.pids(candidate)
                before = self.platform.conditions(pids)
                timed = bench.time(candidate, floor)
                found.update({key: timed[key] for key in ("timings", "audit", "stopped")},
                             errors=_merge(found["errors"], timed["errors"]),
                             conditions=(before, self.platform.conditions(pids)))
                self._conclude(timed)
            self._believe(timed)
            result = self._result(proposal, attempt.verdict, found, seconds)
            if self.profiler is not None:
                with self._stage("profile", seconds):
                    result = self._profile(candidate.build_dir, result)

        self._attempt(proposal, attempt, work)
        if result is None:
            result = self._result(proposal, attempt.verdict, found, attempt.seconds)
        return attempt.completed(result)

    def _survey(self, proposal: Proposal) -> dict[str, Result]:
        assert self._bench is not None
        bench = self._bench
        attempt = _Attempt()
        found: dict[str, dict[str, Any]] = {}

        def work(candidate: Candidate) -> None:
            with self._stage("check", attempt.seconds):
                found.update(bench.survey(candidate))

        self._attempt(proposal, attempt, work)
        results = {}
        for name in RULE_SETS:
            one = found.get(name)
            verdict = Verdict(Status(one["status"]), one["detail"]) if one else attempt.verdict
            results[name] = attempt.completed(self._result(proposal, verdict, one, rules=name))
        return results

    def _attempt(self, proposal: Proposal, attempt: _Attempt, work: Callable[[Candidate], None]) -> None:
        """Read, start and build a candidate, let `work` have it, and end it, whatever happens."""
        assert self._bench is not None
        assert self._root is not None
        assert self._enclosure is not None
        bench, seconds = self._bench, attempt.seconds
        language = proposal.language if proposal.language in languages.LANGUAGES else languages.detect(proposal.source)
        languages.get(language).toolchain()
        candidate = Candidate(proposal.source, language, self.settings, self.threads, self._memory_bytes(), self._root,
                              self.platform.name, self._enclosure)
        try:
            if self.settings.read_source:
                with self._stage("source", seconds):
                    self._read(proposal.source, attempt)
            with self._stage("start", seconds):
                candidate.start()
                bench.prepare()
            with self._stage("build", seconds):
                candidate.build()
            work(candidate)
        except EndedError as ended:
            attempt.verdict = ended.verdict
        except SilentError as silent:
            bench.judge_lost()
            raise FaultError(str(silent)) from silent
        except BaseException:
            bench.judge_lost()  # an interrupt: its answer is still to come, and must not be taken for the next one's
            raise
        finally:
            attempt.log = candidate.end()
            bench.forget(candidate)
            candidate.close()

    def _read(self, source: str, attempt: _Attempt) -> None:
        """Refuse what no honest kernel needs, with the line; remember the rest."""
        found = honesty.read(source, like=self.problem.source)
        attempt.notes += [str(f) for f in found if not f.fatal]
        fatal = [str(f) for f in found if f.fatal]
        if fatal:
            raise EndedError(Verdict(Status.DISHONEST, "\n".join(fatal)))

    def _conclude(self, found: Mapping[str, Any]) -> None:
        if found["status"] == Status.HARNESS_ERROR.value:
            raise FaultError(found["detail"])
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
                seconds: Mapping[str, float] | None = None, *, rules: str = "") -> Result:
        found = found or {}
        timings = tuple(from_dict(Timing, t) for t in found.get("timings", ()))
        mine = next((t for t in timings if t.name == "candidate"), None)
        ratios = {t.name: ratio(t, mine) for t in timings if mine is not None and t is not mine}
        baseline = self.baseline
        floor = baseline.noise_floor if baseline else 0.0
        before, after = found.get("conditions", ({}, {}))
        return Result(
            proposal=proposal, status=verdict.status, detail=verdict.detail, rules=rules or self.rules,
            errors=tuple(from_dict(LeafError, e) for e in found.get("errors", ())), timings=timings, ratios=ratios,
            library_ops=found.get("library_ops", {}), findings=tuple(found.get("notes", ())),
            noise_floor=floor, stopped=found.get("stopped", ""), audit=found.get("audit", {}),
            flags=flags(before, after, timings, floor), bound_ms=baseline.bound_ms if baseline else 0.0,
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


@dataclasses.dataclass
class _Attempt:
    """What one fresh process of a candidate came to."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    verdict: Verdict = dataclasses.field(default_factory=lambda: Verdict(Status.CORRECT))
    notes: list[str] = dataclasses.field(default_factory=list)
    """What the reading of its source noticed."""
    log: str = ""

    def completed(self, result: Result) -> Result:
        """The result with all of that."""
        return dataclasses.replace(result, log=self.log, stage_s=dict(self.seconds),
                                   findings=(*self.notes, *result.findings))


def _merge(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Per leaf the worse of two errors: a failed one, or the one nearer to its limit."""
    found: dict[int, dict[str, Any]] = {}
    for e in [*a, *b]:
        old = found.get(e["leaf"])
        if old is None or (not e["passed"], e["error"]) > (not old["passed"], old["error"]):
            found[e["leaf"]] = e
    return [found[leaf] for leaf in sorted(found)]
