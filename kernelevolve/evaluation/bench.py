"""The standing processes of an evaluator: the judge and one runner per baseline. Started, asked, replaced."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from pathlib import Path
from typing import Any

from kernelevolve import errors, workers
from kernelevolve.evaluation.candidate import RUNNER, Candidate, EndedError, SilentError
from kernelevolve.evaluation.verdict import Verdict
from kernelevolve.platforms import Platform, cache_dir
from kernelevolve.records import Problem, Status, Timing, from_dict
from kernelevolve.settings import Settings
from kernelevolve.workers import ChannelClosedError

log = logging.getLogger(__name__)

AGAIN = "eager again"
"""Name of the second eager process, which exists while the baselines are measured."""


class FaultError(Exception):
    """Something of this package failed while a candidate was evaluated; it may be tried again."""


class Bench:
    """Judge and baselines of one problem. `open` first; `revive` replaces whoever died."""

    def __init__(self, problem: Problem, *, root: Path, platform: Platform, rules: str, seed: int, settings: Settings,
                 threads: int, case: str | None) -> None:
        self.problem, self.rules, self.seed, self.case = problem, rules, seed, case
        self.platform, self.settings, self.threads = platform, settings, threads
        self.flush_bytes = min(platform.flush_bytes, settings.flush_bytes)
        self.notes: list[str] = []
        self.info: dict[str, Any] = {}
        self.start_s: dict[str, float] = {}
        self.flags: dict[str, dict[str, Any]] = {}
        """What each baseline's process was set to."""
        self.names: list[str] = []
        """Baselines in use."""
        self._path = root / "problem.py"
        self._path.write_text(problem.source, encoding="utf-8")
        self._judge: workers.Worker | None = None
        self._runners: dict[str, workers.Worker] = {}

    def open(self) -> None:
        """Start the judge, then every baseline; one that cannot be used is left out and noted."""
        self._open_judge()
        self.notes += self.info["notes"]
        for name in (*self.settings.baselines, *self.problem.references):
            try:
                note = self._attach(name)
            except errors.WorkerError as error:
                if name == "eager":
                    raise
                self.notes.append(f"baseline {name} is absent: {error}")
                self._drop(name)
                continue
            if note and name in self.problem.references:
                self.notes.append(f"baseline {name} is left out, because it is not the same function: {note}")
                self._drop(name)
                continue
            if note:
                self.notes.append(f"baseline {name} differs from the reference: {note}")
            self.names.append(name)
            if other := {k for k, v in self.flags["eager"].items() if self.flags[name].get(k) != v}:
                self.notes.append(f"baseline {name} was set to other {', '.join(sorted(other))} than eager")

    def measure(self, time_s: float) -> tuple[tuple[Timing, ...], Timing]:
        """One session of all baselines and a second eager process; their timings, and that one's."""
        self._attach(AGAIN)
        try:
            with self.platform.timing_lock(self.settings.lock_timeout_s):
                answer = self._ask({"op": "compare", "names": [*self.names, AGAIN], "time_s": time_s},
                                   self.settings.time_timeout_s + self.settings.compile_timeout_s)
        finally:
            self._drop(AGAIN)
        timings = [from_dict(Timing, t) for t in answer["timings"]]
        again = next(t for t in timings if t.name == AGAIN)
        return tuple(t for t in timings if t is not again), again

    def prepare(self) -> None:
        """Let the judge make the next trials while the candidate builds."""
        self._tell({"op": "prepare"})

    def check(self, candidate: Candidate) -> dict[str, Any]:
        """Hand the candidate's channel to the judge and await its findings.

        Raises EndedError, SilentError, FaultError.
        """
        assert candidate.worker is not None
        limit = max(self.settings.check_timeout_s, 60 * self.info["reference_s"])
        fds = [candidate.worker.channel.fileno()]
        message = {"op": "check", "language": candidate.language}
        answer = self._watch(message, candidate, stage="check", limit_s=limit, fds=fds)
        candidate.check_folder()
        return answer

    def survey(self, candidate: Candidate) -> dict[str, dict[str, Any]]:
        """Hand the candidate's channel to the judge for its findings under every rule set; raises as `check` does."""
        assert candidate.worker is not None
        limit = max(self.settings.check_timeout_s, 60 * self.info["reference_s"])
        fds = [candidate.worker.channel.fileno()]
        message = {"op": "survey", "language": candidate.language}
        found = self._watch(message, candidate, stage="check", limit_s=limit, fds=fds)["rules"]
        return {str(name): dict(one) for name, one in found.items()}

    def time(self, candidate: Candidate, floor: float) -> dict[str, Any]:
        """Time the candidate beside every baseline, on a machine with that noise floor."""
        limit = max(self.settings.time_timeout_s, 200 * self.info["reference_s"])
        message = {"op": "time", "names": self.names, "floor": floor}
        answer = self._watch(message, candidate, stage="time", limit_s=limit)
        candidate.check_folder()
        return answer

    def pids(self, candidate: Candidate | None = None) -> list[int]:
        """Processes that take part in a timing: the user's, the judge's, the baselines' and the candidate's."""
        standing = [self._judge, *self._runners.values(), candidate.worker if candidate else None]
        pids = [worker.pid for worker in standing if worker is not None]
        return [os.getpid(), *[pid for pid in pids if pid is not None]]

    def forget(self, candidate: Candidate) -> None:
        """Let the judge close the candidate's channel."""
        if candidate.worker is not None and self._judge is not None:
            with contextlib.suppress(errors.WorkerError):
                self._ask({"op": "detach", "name": "candidate"}, 60)

    def revive(self) -> None:
        """Start again whoever is gone. Cheap when nobody is."""
        if self._judge is not None and self._judge.poll() is not None:
            self.judge_lost()
        if self._judge is None:
            for name in list(self._runners):
                self._drop(name)
            self._open_judge()
        for name in self.names:
            worker = self._runners.get(name)
            if worker is None or worker.poll() is not None:
                log.warning("baseline %s is gone; it is started again", name)
                self._attach(name)

    def renew(self, affordable_s: float) -> None:
        """Fresh processes for the baselines that start within `affordable_s`."""
        for name in self.names:
            if self.start_s.get(name, 0.0) <= affordable_s:
                self._attach(name)

    def judge_lost(self) -> None:
        """The judge died or hangs: end it. Its baselines' conversations end with it."""
        if self._judge is not None:
            log.warning("the judge is lost: %s", self._judge.log()[-2000:])
            self._judge.kill()
            self._judge = None

    def close(self) -> None:
        """End every process."""
        for name in list(self._runners):
            self._drop(name)
        if self._judge is not None:
            self._judge.kill()
            self._judge = None

    def _open_judge(self) -> None:
        self._judge = workers.start("kernelevolve.evaluation.judge:main", cwd=self._path.parent)
        settings = dataclasses.asdict(self.settings) | {"threads": self.threads, "flush_bytes": self.flush_bytes}
        self.info = self._ask({
            "op": "open", "path": str(self._path), "platform": self.platform.name,
            "case": self.case, "rules": self.rules, "seed": self.seed,
            "scale": self.problem.tolerance or 1.0, "settings": settings,
        }, self.settings.compile_timeout_s)

    def _attach(self, name: str) -> str:
        """Start a baseline's runner and hand it to the judge; the judge's note on it. Raises WorkerError."""
        self._drop(name)
        begin = time.monotonic()
        worker = self._runners[name] = workers.start(RUNNER, cwd=self._path.parent, env={
            "OMP_NUM_THREADS": str(self.threads),
            "TORCHINDUCTOR_CACHE_DIR": str(cache_dir() / "inductor"),
        })
        is_reference = name in self.problem.references
        limit = self.settings.compile_timeout_s
        try:
            worker.channel.send({
                "op": "load", "path": str(self._path), "build_dir": str(self._path.parent / "baselines"),
                "language": "pytorch", "name": name if is_reference else "Model",
                "reference": is_reference, "compile": name == "compile", "case": self.info["case"],
                "threads": self.threads, "platform": self.platform.name,
            })
            answer, _ = worker.channel.recv(limit)
        except (ChannelClosedError, TimeoutError) as error:
            raise errors.WorkerError(f"baseline {name} does not load: {error}\n{worker.log()}") from error
        if "error" in answer:
            raise errors.WorkerError(f"baseline {name} does not load: {answer['error']['message']}")
        found = self._ask({"op": "attach", "name": name, "timeout_s": limit}, limit + 60, fds=[worker.channel.fileno()])
        self.start_s[name] = time.monotonic() - begin
        self.flags[name] = dict(found["flags"])
        return str(found["note"])

    def _drop(self, name: str) -> None:
        worker = self._runners.pop(name, None)
        if worker is None:
            return
        worker.kill()
        if self._judge is not None:
            with contextlib.suppress(errors.WorkerError):
                self._ask({"op": "detach", "name": name}, 60)

    def _watch(self, message: dict[str, Any], candidate: Candidate, *, stage: str, limit_s: float,
               fds: list[int] | None = None) -> dict[str, Any]:
        """Ask the judge about the candidate while watching both."""
        self._tell(message, fds)
        assert self._judge is not None
        answer = candidate.await_answer(self._judge.channel, stage=stage, limit_s=limit_s)
        who = answer.get("lost") or answer.get("raised")
        if who == "candidate":
            if answer.get("reason") == "timeout":
                raise EndedError(Verdict(Status.TIMEOUT, f"{stage}: {answer['detail']}; its processes were killed"))
            raise EndedError(candidate.decided(stage))
        if who is not None:
            self._drop(who)
            raise FaultError(f"baseline {who} failed during {stage}: {answer.get('detail') or answer.get('error')}")
        if "refused" in answer:
            raise FaultError(f"the judge refused during {stage}: {answer['message']}")
        return dict(answer)

    def _tell(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        if self._judge is None:
            raise FaultError("the judge is not running")
        try:
            self._judge.channel.send(message, fds, timeout_s=60)
        except (ChannelClosedError, TimeoutError) as error:
            raise SilentError(f"the judge takes no messages: {error}") from error

    def _ask(self, message: dict[str, Any], timeout_s: float, fds: list[int] | None = None) -> dict[str, Any]:
        """Ask the judge something that concerns no candidate. Raises WorkerError, or its own error."""
        try:
            self._tell(message, fds)
            assert self._judge is not None
            answer, extra = self._judge.channel.recv(timeout_s)
        except (SilentError, FaultError, ChannelClosedError, TimeoutError) as error:
            text = self._judge.log() if self._judge is not None else ""
            self.judge_lost()
            raise errors.WorkerError(f"the judge gave no answer to {message['op']!r}: {error}\n{text}") from error
        for fd in extra:
            os.close(fd)
        if "refused" in answer:
            kind = getattr(errors, answer["refused"], errors.WorkerError)
            raise (errors.SettingError if kind is errors.UnknownNameError else kind)(answer["message"])
        if "lost" in answer or "raised" in answer:
            who = answer.get("lost") or answer.get("raised")
            worker = self._runners.get(who)
            why = answer.get("detail") or (answer.get("error") or {}).get("traceback")
            raise errors.WorkerError(f"{who}: {why}\n{worker.log() if worker else ''}")
        return dict(answer)
