"""Everything that only a CUDA device can show, in one command: facts, lent memory, the control, the villains, noise.

    python benchmarks/gpu_smoke.py --out DIR [--parts facts,ipc,control,villains,noise] [--only NAME ...]

Each part goes on after a failure of another and prints what is needed to understand one. A JSON line per villain is
written to DIR/villains.jsonl as it goes. This process never touches the device: workers do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

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


# (0) what the fork server imports ------------------------------------------------------------------------------------

PRELOADS = """
import importlib, os, sys, traceback
seen = set()
def opened():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if "nvidia" in name:
            found.add(name)
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        found.add("threads: " + " ".join(sorted(open("/proc/self/task/%s/comm" % t).read().strip() for t in threads)))
    return found
busy = False
def hook(event, args):
    global busy
    if busy or event not in ("import", "ctypes.dlopen", "subprocess.Popen"):
        return
    busy = True
    new = opened() - seen
    if new:
        seen.update(new)
        print("   before", event, str(args[0])[:80], "were opened:", sorted(new))
        stack = [f for f in traceback.extract_stack()[:-1] if "importlib" not in f.filename]
        for f in stack[-7:]:
            print("      %s:%s %s" % (f.filename.split("-packages/")[-1], f.lineno, f.line))
    busy = False
sys.addaudithook(hook)
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, "is not there:", error)
    busy = True
    new = opened() - seen
    seen.update(new)
    print(name, "->", sorted(new) or "nothing", flush=True)
    busy = False
torch = sys.modules["torch"]
print("initialized", torch.cuda.is_initialized(), "bad fork", torch.cuda._is_in_bad_fork())
"""


def preload(smoke: Smoke) -> None:
    """Which import of the server's opens the device, with the stack at the next import event."""
    from kernelevolve.workers.environment import scrubbed
    from kernelevolve.workers.server import PRELOAD

    for names in (PRELOAD, ("torch", "triton")):
        done = subprocess.run([sys.executable, "-c", PRELOADS, *names], capture_output=True, text=True, timeout=120,
                              check=False, env=scrubbed())
        print(" ".join(names))
        print(done.stdout[-5000:], done.stderr[-1500:])


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


def open_devices(pid: str) -> list[str]:
    """Device nodes that a process has open."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return sorted({name for name in found if "nvidia" in name})


def untouched(smoke: Smoke) -> None:
    """The server that forks workers must not have the device open."""
    from kernelevolve.workers import pool

    assert pool._server is not None
    pid = pool._server.process.pid
    mapped = sorted({line.split()[-1] for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                     if "libcuda.so" in line or "/dev/nvidia" in line})
    opened, mine = open_devices(str(pid)), open_devices("self")
    print("server's open device files:", opened, "mapped:", mapped, "own:", mine)
    if opened:
        print("NOTE: the fork server has touched the device")
        smoke.failed.append("the fork server has touched the device")


# (b) lent memory -----------------------------------------------------------------------------------------------------

def serve(channel: Any) -> None:
    """A worker that lends and borrows on command; {"op": name, ...} -> {"value"} or {"error"}."""
    peer = Peer()
    while True:
        message, _ = channel.recv()
        op = message.pop("op")
        if op == "exit":
            return
        try:
            channel.send({"value": getattr(peer, op)(**message)})
        except Exception:
            channel.send({"error": traceback.format_exc()})


class Peer:
    """One end of the round trip. Memories and tensors by name."""

    def __init__(self) -> None:
        self.device = PLATFORMS["cuda"].device
        self.memories: dict[str, Any] = {}
        self.specs: dict[str, Any] = {}
        self.tensors: dict[str, Any] = {}

    def hello(self) -> str:
        import torch

        start = time.perf_counter()
        self.device.synchronize()
        return f"pid {os.getpid()} {torch.cuda.get_device_name()} in {time.perf_counter() - start:.2f} s"

    def lend(self, name: str, kind: str = "mixed", size: int = 0) -> Any:
        import torch

        from kernelevolve.evaluation.inside.tensors import layout

        leaves = [torch.arange(1000, dtype=torch.float32), torch.arange(777, dtype=torch.int64),
                  torch.rand(33, 65).T, torch.ones(5, dtype=torch.bool)] if kind == "mixed" else \
            [torch.ones(size, dtype=torch.uint8)]
        leaves = [leaf.to("cuda") for leaf in leaves]
        specs, total = layout(leaves)
        memory = self.device.lend(total)
        zero = bool((memory.bytes == 0).all())
        memory.guard(specs)
        memory.write(leaves, specs)
        self.device.synchronize()
        ticket, fds = memory.ticket()
        self.memories[name], self.specs[name] = memory, specs
        sums = [float(t.double().sum()) for t in memory.tensors(specs)]
        return {"ticket": ticket, "fds": fds, "specs": specs, "sums": sums, "zeroed": zero,
                "breached": memory.breached(specs), "size": memory.size, "asked": total,
                "address": hex(memory.bytes.data_ptr())}

    def open(self, name: str, ticket: Any, specs: Any) -> Any:
        start = time.perf_counter()
        memory = self.device.open(ticket, [])
        took = time.perf_counter() - start
        self.memories[name], self.specs[name] = memory, specs
        tensors = memory.tensors(specs)
        return {"sums": [float(t.double().sum()) for t in tensors], "open_s": took,
                "devices": [str(t.device) for t in tensors], "shapes": [list(t.shape) for t in tensors],
                "strides": [list(t.stride()) for t in tensors], "types": [type(t).__name__ for t in tensors],
                "storage_bytes": [t.untyped_storage().nbytes() for t in tensors],
                "spec_bytes": [s["bytes"] for s in specs], "address": hex(memory.bytes.data_ptr())}

    def add(self, name: str) -> Any:
        self.memories[name].tensors(self.specs[name])[0].add_(1)
        self.device.synchronize()

    def sums(self, name: str) -> Any:
        return [float(t.double().sum()) for t in self.memories[name].tensors(self.specs[name])]

    def breached(self, name: str) -> Any:
        return self.memories[name].breached(self.specs[name])

    def poke(self, name: str, place: int) -> Any:
        self.memories[name].bytes[place] = 0
        self.device.synchronize()

    def keep(self, name: str) -> Any:
        """Hold a tensor, let the memory object go."""
        self.tensors[name] = self.memories.pop(name).tensors(self.specs[name])[0]

    def kept_sum(self, name: str) -> float:
        return float(self.tensors[name].double().sum())

    def drop(self, name: str) -> Any:
        self.memories.pop(name, None)
        self.tensors.pop(name, None)

    def free_mib(self) -> float:
        import torch

        return torch.cuda.mem_get_info()[0] / 2**20

    def swap(self) -> Any:
        """A ticket that is none, and a stopwatch."""
        import torch

        from kernelevolve.errors import WorkerError

        words = []
        for ticket in ({}, {"size": 5, "handle": "zz"}, {"size": 2**21, "handle": "00" * 64}):
            try:
                self.device.open(ticket, [])
                words.append("opened")
            except WorkerError as error:
                words.append(str(error))
        watch = self.device.stopwatch()
        x = torch.rand(2**26, device="cuda")
        spans = []
        for run in (lambda: None, lambda: x.mul_(1.0), lambda: [x.mul_(1.0) for _ in range(20)]):
            self.device.synchronize()
            watch.start()
            run()
            spans.append(watch.stop())
        side = torch.cuda.Stream()
        self.device.synchronize()
        watch.start()
        with torch.cuda.stream(side):
            for _ in range(20):
                x.mul_(1.0)
        spans.append(watch.stop())
        return {"bad tickets": words,
                "spans (device ns, host ns): nothing, one, twenty, twenty on a side stream": spans}


def ipc(smoke: Smoke) -> None:
    lender = workers.start("benchmarks.gpu_smoke:serve")
    borrower = workers.start("benchmarks.gpu_smoke:serve")

    def ask(who: Any, op: str, **message: Any) -> Any:
        who.channel.send({"op": op, **message}, timeout_s=60)
        answer, _ = who.channel.recv(60)
        if "error" in answer:
            raise RuntimeError(f"{op}: {answer['error']}")
        return answer["value"]

    try:
        print("lender", ask(lender, "hello"))
        print("borrower", ask(borrower, "hello"))
        untouched(smoke)
        lent = ask(lender, "lend", name="a")
        print("lent", {k: v for k, v in lent.items() if k not in ("specs",)})
        assert lent["zeroed"], "fresh memory was not zero"
        assert lent["breached"] is None
        got = ask(borrower, "open", name="a", ticket=lent["ticket"], specs=lent["specs"])
        print("opened", got)
        assert got["sums"] == lent["sums"], "the bytes are not the same"
        assert got["storage_bytes"] == got["spec_bytes"], "a storage is larger than its span"
        ask(borrower, "add", name="a")
        now = ask(lender, "sums", name="a")
        assert now[0] == lent["sums"][0] + 1000, (now, lent["sums"])
        assert ask(lender, "breached", name="a") is None
        for place in (lent["size"] - 1, lent["asked"] - 1, lent["specs"][0]["start"] - 1, 0):
            ask(borrower, "poke", name="a", place=place)
            found = ask(lender, "breached", name="a")
            print("poked", place, "found", found)
            assert found == place, "a write into the guard band was not seen"
        ask(borrower, "keep", name="a")
        print("tensor outlives its memory object:", ask(borrower, "kept_sum", name="a") == now[0])
        print("bad tickets and stopwatch", json.dumps(ask(borrower, "swap"), indent=1))
        free = ask(lender, "free_mib")
        big = ask(lender, "lend", name="b", kind="bytes", size=2**30)
        ask(borrower, "open", name="b", ticket=big["ticket"], specs=big["specs"])
        held = ask(lender, "free_mib")
        ask(borrower, "drop", name="b")
        ask(lender, "drop", name="b")
        after = ask(lender, "free_mib")
        print(f"free MiB before {free:.0f}, with 1 GiB lent {held:.0f}, after both dropped {after:.0f}")
        # The lender frees while the borrower still holds on, then lends again: is the new one really new?
        old = ask(lender, "lend", name="c", kind="bytes", size=2**22)
        ask(borrower, "open", name="c", ticket=old["ticket"], specs=old["specs"])
        ask(lender, "drop", name="c")
        new = ask(lender, "lend", name="d")
        try:
            seen = ask(borrower, "open", name="d", ticket=new["ticket"], specs=new["specs"])
            print("freed while borrowed, lent again:", seen["sums"] == new["sums"], old["address"], new["address"],
                  seen["address"])
            print("what the borrower still reads of the freed one:", ask(borrower, "sums", name="c"))
        except RuntimeError as error:
            print("freed while borrowed, lent again:", error)
        ask(borrower, "drop", name="c")
        for size in (2**12, 2**22, 2**28, 2**30):
            spans = []
            for _ in range(8):
                start = time.perf_counter()
                memory = ask(lender, "lend", name="t", kind="bytes", size=size)
                lent_s = time.perf_counter() - start
                opened = ask(borrower, "open", name="t", ticket=memory["ticket"], specs=memory["specs"])
                ask(borrower, "drop", name="t")
                ask(lender, "drop", name="t")
                spans.append((lent_s * 1e3, opened["open_s"] * 1e3, (time.perf_counter() - start) * 1e3))
            print(f"{size} bytes: lend (with fill and guard) / open / all: ",
                  " ".join(f"{a:.2f}/{b:.2f}/{c:.2f}" for a, b, c in spans), "ms")
    finally:
        for who in (lender, borrower):
            text = who.log()
            who.kill()
            if text.strip():
                print("log:", text[-3000:])


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
    used = cuda_facts.memory_used_mib()
    with (smoke.out / "villains.jsonl").open("a") as file:
        for number, villain in enumerate(everyone):
            line: dict[str, Any] = {"name": villain.name, "problem": villain.problem, "level": villain.level}
            if smoke.left_s < 40:
                print(f"{villain.name}: not run, the time is up")
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
