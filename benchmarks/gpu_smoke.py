"""Everything that only a CUDA device can show, in one command: facts, lent memory, the control, the villains, noise.

    python benchmarks/gpu_smoke.py --out DIR [--parts facts,ipc,control,villains,noise] [--only NAME ...]

Each part goes on after a failure of another and prints what is needed to understand one. A JSON line per villain is
written to DIR/villains.jsonl as it goes. This process never touches the device: workers do.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gpu_memory import ipc, preload, untouched
from kernelevolve import workers
from kernelevolve.platforms import PLATFORMS, cuda_facts
from kernelevolve.records import Problem, Proposal, Result
from kernelevolve.settings import Settings
from kernelevolve.testing import villains

PARTS = ("preload", "facts", "ipc", "control", "villains", "noise")
DETAIL = 300
"""Characters of a verdict's detail on the screen; the JSON lines hold all of it."""


class Smoke:
    """The run: its folder, its clock, its evaluators by problem and settings."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.out = args, args.out
        self.begin = time.monotonic()
        self.failed: list[str] = []
        self.evaluators: dict[Any, Any] = {}
        self.stages: list[tuple[str, str]] = []

    @property
    def problems(self) -> tuple[str, ...]:
        """Large enough on a device that a launch is not what is measured."""
        return ("softmax_large", "matmul_large") if self.args.platform == "cuda" else ("softmax", "matmul")

    @property
    def left_s(self) -> float:
        return float(self.args.limit_s) - (time.monotonic() - self.begin)

    def settings(self, **changed: Any) -> Settings:
        return Settings(**{"build_timeout_s": 60.0, "call_timeout_s": 5.0, "time_s": 0.3, "baseline_time_s": 0.5,
                           "isolation": self.args.isolation, "baselines": self.args.baselines, **changed})

    def evaluator(self, problem: str, changed: dict[str, Any]) -> Any:
        """One per problem and settings; started when first asked for."""
        from kernelevolve.evaluation import Evaluator

        key = (problem, json.dumps(changed, sort_keys=True))
        if key not in self.evaluators:
            subject = Problem(id=f"villains/{problem}", source=villains.problem_source(problem), code_hash="0")
            made = Evaluator(subject, platform=self.args.platform, settings=self.settings(**changed),
                             on_stage=lambda stage, _, status: self.stages.append((stage, status)))
            made.start()
            self.evaluators[key] = made
        return self.evaluators[key]

    def drop(self, problem: str, changed: dict[str, Any]) -> None:
        made = self.evaluators.pop((problem, json.dumps(changed, sort_keys=True)), None)
        if made is not None:
            made.close()

    def close(self) -> None:
        for made in self.evaluators.values():
            try:
                made.close()
            except Exception:
                traceback.print_exc()


def show(result: Result) -> str:
    """One line of a result."""
    times = " ".join(f"{t.name}={t.median_ms * 1e3:.2f}us" for t in result.timings)
    ratios = " ".join(f"x{r.value:.3f}[{r.low:.3f},{r.high:.3f}]/{name}" for name, r in result.ratios.items())
    stages = " ".join(f"{name}={seconds:.2f}" for name, seconds in result.stage_s.items())
    detail = " ".join(result.detail.split())[:DETAIL]
    return f"{result.status.value} | {times} | {ratios} | stages {stages} | {detail}"


# (a) facts -----------------------------------------------------------------------------------------------------------

def facts(smoke: Smoke) -> None:
    platform = PLATFORMS["cuda"]
    print("available:", platform.available())
    if not platform.available()[0]:
        raise SystemExit("no device here")
    start = time.monotonic()
    found = platform.facts()
    print(f"facts and peaks ({time.monotonic() - start:.1f} s):")
    print(json.dumps(found, indent=1))
    print("flush_bytes", platform.flush_bytes, "threads", platform.threads)
    for _ in range(3):
        start = time.monotonic()
        state = cuda_facts.conditions(found["uuid"])
        print(f"conditions ({time.monotonic() - start:.3f} s)", state)
    start = time.monotonic()
    again = platform.facts(again=True)
    print(f"peaks a second time ({time.monotonic() - start:.1f} s):",
          {k: round(v / found[k], 4) for k, v in again.items() if isinstance(v, float) and found.get(k)})
    (smoke.out / "facts.json").write_text(json.dumps(again, indent=1))
    untouched(smoke)


# (c) the control -----------------------------------------------------------------------------------------------------

def run_control(smoke: Smoke) -> None:
    for problem in smoke.problems:
        try:
            evaluator = smoke.evaluator(problem, {})
            base = evaluator.baseline
            print(f"{problem}: started in {base.start_s:.1f} s, noise floor {base.noise_floor:.4f}, bound "
                  f"{base.bound_ms * 1e3:.3f} us, notes {base.notes}, "
                  + " ".join(f"{t.name}={t.median_ms * 1e3:.2f}us" for t in base.timings))
            mine, eager = villains.good_source(problem), villains.control_source(problem)
            for name, source in (("kernel", mine), ("eager copy", eager), ("kernel again", mine)):
                result = evaluator.evaluate(Proposal(source, "", "hand"))
                print(f"{problem} {name}: {show(result)}")
                for error in result.errors:
                    print("   ", error)
                if not result.correct:
                    smoke.failed.append(f"control {problem} {name}: {result.status.value}")
                    print(result.detail[-3000:], "\nlog:", result.log[-2000:])
        except Exception:
            smoke.failed.append(f"control {problem}")
            traceback.print_exc()


# (d) the villains ----------------------------------------------------------------------------------------------------

def run_villains(smoke: Smoke) -> None:
    everyone = villains.load(smoke.args.platform)
    if smoke.args.only:
        everyone = [v for v in everyone if v.name in smoke.args.only]
    everyone.sort(key=lambda v: (v.problem, json.dumps(dict(v.settings)), v.name))
    read_source = {"read_source": False} if smoke.args.no_source else {}
    used, in_a_row = cuda_facts.memory_used_mib(), 0
    with (smoke.out / "villains.jsonl").open("a") as file:
        for number, villain in enumerate(everyone):
            line: dict[str, Any] = {"name": villain.name, "problem": villain.problem, "level": villain.level}
            if smoke.left_s < 40 or in_a_row >= 3:
                print(f"{villain.name}: not run, {'after three exceptions' if in_a_row >= 3 else 'the time is up'}")
                line["not_run"] = True
                file.write(json.dumps(line) + "\n")
                continue
            if not villain.runs_at(smoke.args.isolation):
                print(f"{villain.name}: not run at {smoke.args.isolation}")
                continue
            expect, stage = (villain.expect, villain.stage) if not smoke.args.no_source else \
                (villain.runtime or villain.expect, villain.runtime_stage)
            changed = {**read_source, **villain.settings}
            begin = time.monotonic()
            try:
                evaluator = smoke.evaluator(villain.problem, changed)
                smoke.stages.clear()
                begin = time.monotonic()
                result = evaluator.evaluate(Proposal(villain.source, "", "hand"))
                took = time.monotonic() - begin
                got_stage = smoke.stages[-1][0] if smoke.stages else "source"
                ok = result.status is expect and stage in ("", got_stage)
                after = evaluator.evaluate(Proposal(villains.good_source(villain.problem), "", "hand"))
                now = cuda_facts.memory_used_mib()
                line |= {"expected": expect.value, "expected_stage": stage, "got": result.status.value,
                         "got_stage": got_stage, "ok": ok, "seconds": round(took, 2), "detail": result.detail,
                         "log": result.log[-4000:], "stages": dict(result.stage_s), "control": after.status.value,
                         "control_detail": "" if after.correct else after.detail,
                         "control_us": [t.median_ms * 1e3 for t in after.timings if t.name == "candidate"],
                         "memory_mib": [used, now]}
                if result.timings:
                    line["timings_us"] = {t.name: t.median_ms * 1e3 for t in result.timings}
                if not ok:
                    smoke.failed.append(f"{villain.name}: expected {expect.value} at {stage or 'any'}, got "
                                        f"{result.status.value} at {got_stage}")
                if not after.correct:
                    smoke.failed.append(f"control after {villain.name}: {after.status.value}")
                detail = " ".join(result.detail.split())[:DETAIL]
                print(f"{'ok ' if ok else 'BAD'} {villain.name}: {result.status.value} at {got_stage} (expected "
                      f"{expect.value} at {stage or 'any'}) {took:.1f} s; control {after.status.value} "
                      f"{line['control_us']}; memory {now} MiB | {detail}", flush=True)
                if not after.correct:
                    print("   control:", after.detail[-1500:])
            except Exception:
                line |= {"exception": traceback.format_exc(), "seconds": round(time.monotonic() - begin, 2)}
                smoke.failed.append(f"{villain.name}: exception")
                print(f"EXC {villain.name}\n{line['exception']}", flush=True)
                smoke.drop(villain.problem, changed)
                in_a_row += 1
            else:
                in_a_row = 0
            file.write(json.dumps(line, default=str) + "\n")
            file.flush()
            next_one = everyone[number + 1] if number + 1 < len(everyone) else None
            if next_one is None or (next_one.problem, next_one.settings) != (villain.problem, villain.settings):
                smoke.drop(villain.problem, changed)


# (e) noise -----------------------------------------------------------------------------------------------------------

def noise(smoke: Smoke) -> None:
    rows = []
    for problem in smoke.problems:
        evaluator = smoke.evaluator(problem, {})
        for _ in range(4):
            result = evaluator.evaluate(Proposal(villains.control_source(problem), "", "hand"))
            if result.correct:
                ratio = result.ratios["eager"]
                rows.append({"problem": problem, "ratio": ratio.value, "low": ratio.low, "high": ratio.high,
                             "stages": dict(result.stage_s)})
            print(f"{problem}, a copy of eager against eager: {show(result)}")
        print(f"{problem}: noise floor {evaluator.baseline.noise_floor:.4f}")
    (smoke.out / "noise.json").write_text(json.dumps(rows, indent=1))


RUN: dict[str, Callable[[Smoke], None]] = {
    "preload": preload, "facts": facts, "ipc": ipc, "control": run_control, "villains": run_villains, "noise": noise,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for facts.json, villains.jsonl, noise.json")
    parser.add_argument("--parts", default=",".join(PARTS), type=lambda text: [p for p in text.split(",") if p])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these villains alone")
    parser.add_argument("--no-source", action="store_true", help="do not read sources: what the runtime finds alone")
    parser.add_argument("--isolation", default="process")
    parser.add_argument("--platform", default="cuda", help="cpu tries this script out where there is no device")
    parser.add_argument("--baselines", default="eager", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--limit-s", default=540.0, type=float, help="villains that do not fit are left out")
    args = parser.parse_args()
    unknown = set(args.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown parts {sorted(unknown)}; known: {', '.join(PARTS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    smoke = Smoke(args)
    try:
        for part in args.parts:
            start = time.monotonic()
            print(f"\n===== {part}", flush=True)
            try:
                RUN[part](smoke)
            except Exception:
                smoke.failed.append(part)
                traceback.print_exc()
            sys.stdout.flush()
            print(f"----- {part}: {time.monotonic() - start:.1f} s", flush=True)
    finally:
        smoke.close()
        workers.shutdown()
    print("\n===== " + (f"{len(smoke.failed)} FAILED" if smoke.failed else "all as expected"))
    for line in smoke.failed:
        print("  ", line)
    (smoke.out / "failed.json").write_text(json.dumps(smoke.failed, indent=1))
    sys.exit(bool(smoke.failed))


if __name__ == "__main__":
    main()
