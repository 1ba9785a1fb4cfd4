"""What is killed is dead soon, what printed a gigabyte cost nothing, what ended left nothing behind."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence

from kernelevolve.records import Status
from kernelevolve.testing import villains
from kernelevolve.testing.self_test import processes
from kernelevolve.testing.self_test.record import Outcome, Row
from kernelevolve.testing.self_test.setup import Setup, evaluate

KILL_P50_S, KILL_P99_S = 0.5, 2.0
LEFT_AFTER_S = 2.0
MEMORY_MB = 50.0
RESPAWN_S = {"cpu": 1.0}
GPU_RESPAWN_S = 10.0
PRINTED_BYTES = 10**9
_LIMIT_S = 0.3

HANGING = (
    "while True:\n    pass\n",
    "import signal\nimport time\nfor number in range(1, 32):\n    if number not in (9, 19):\n"
    "        signal.signal(number, signal.SIG_IGN)\nwhile True:\n    time.sleep(1)\n",
    "import os\nimport time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n"
    "while True:\n    time.sleep(1)\n",
)
"""A loop, one that ignores every signal it may, and one with a daemon that has left its process group."""

PRINTS = """
import os
block = b"x" * 65535 + b"\\n"
written = 0
while written < {size}:
    written += os.write(1, block)
"""
CRASHES = "import os\nimport signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


def run_kill(setup: Setup) -> None:
    """Time from a passed limit until the evaluator has answered, every process is dead and the folder is gone."""
    rounds = 15 if setup.quick else 120
    beyond: list[float] = []
    wrong: list[str] = []
    begin = time.monotonic()
    with setup.evaluator(villains.problem_source(), build_timeout_s=_LIMIT_S, read_source=False) as evaluator:
        evaluate(evaluator, HANGING[0])
        standing = processes.descendants()
        for i in range(rounds):
            result, seconds = evaluate(evaluator, HANGING[i % len(HANGING)])
            left = processes.wait_gone(standing, 5 * KILL_P99_S)
            late = processes.wait_gone(standing, 0.0)
            beyond.append(seconds - result.stage_s.get("start", 0.0) - _LIMIT_S if not left else math.inf)
            wrong += [f"{result.status.value}: {result.detail}"] if result.status is not Status.COMPILE_TIMEOUT else []
            wrong += [f"still alive: {processes.describe(pid)}" for pid in late]
    spent, told = time.monotonic() - begin, "; ".join(dict.fromkeys(wrong))
    for name, share, target in (("kill latency p50", 0.5, KILL_P50_S), ("kill latency p99", 0.99, KILL_P99_S)):
        value = percentile(beyond, share)
        setup.claim("kill", name, passed=value < target and not wrong, expected=f"< {target:g} s beyond the limit",
                    got=f"{value:.3f} s", seconds=spent / 2, value=value, unit="s", n=rounds,
                    note=told or "until the evaluator answered; loops, ignored signals and daemons in turn")


def run_left_over(setup: Setup, gpu_before_mib: float | None) -> None:
    """Processes, files and device memory, two seconds after the last candidate."""
    time.sleep(LEFT_AFTER_S)
    alive = sorted(processes.descendants() - setup.before)
    files = sorted(os.listdir(setup.scratch))  # noqa: PTH208 - names are wanted
    told = f"{LEFT_AFTER_S:g} s after"
    setup.claim("left over", "processes", passed=not alive, expected=f"0, {told}", got=str(len(alive)), seconds=2.0,
                value=len(alive), n=1, note="; ".join(map(processes.describe, alive[:5])))
    setup.claim("left over", "files", passed=not files, expected=f"0, {told}", got=str(len(files)), value=len(files),
                n=1, note=", ".join(files[:5]) or "in the folder that every candidate's own lies in")
    if setup.platform.name == "cpu":
        return
    now = processes.gpu_used_mib()
    if now is None or gpu_before_mib is None:
        setup.add(Row("left over", "device memory", "–", "unknown", Outcome.NOT_RUN, note="no nvidia-smi"))
        return
    # nvidia-smi tells whole MiB; other programs on the device count too.
    setup.claim("left over", "device memory", passed=now - gpu_before_mib < 1, expected="< 1 MiB over the start",
                got=f"{now - gpu_before_mib:+.0f} MiB", value=now - gpu_before_mib, unit="MiB", n=1)


def run_memory(setup: Setup) -> None:
    """This process's own memory while a candidate prints a gigabyte."""
    good = villains.control_source()
    with setup.evaluator(villains.problem_source(), output_bytes=4 * PRINTED_BYTES, build_timeout_s=120.0,
                         read_source=False) as evaluator:
        evaluate(evaluator, good)
        with processes.watch_memory() as peak:
            result, seconds = evaluate(evaluator, PRINTS.format(size=PRINTED_BYTES) + good)
    grown = peak.growth_bytes / 1e6
    setup.claim("memory", "growth while a candidate prints 1 GB", passed=grown < MEMORY_MB and result.correct,
                expected=f"< {MEMORY_MB:g} MB, and correct", got=f"{grown:.1f} MB, {result.status.value}",
                seconds=seconds, value=grown, unit="MB", n=1, note=result.detail)


def run_respawn(setup: Setup) -> None:
    """After a crash: from asking for a new process until it has loaded a candidate (and, on a device, run it)."""
    target = RESPAWN_S.get(setup.platform.name, GPU_RESPAWN_S)
    good = villains.control_source()
    # A device's context is made by the first call, so there the whole check counts: more than is asked for.
    stages = ("start", "build") if setup.platform.name == "cpu" else ("start", "build", "check")
    ready: list[float] = []
    begin = time.monotonic()
    with setup.evaluator(villains.problem_source(), read_source=False) as evaluator:
        for _ in range(3 if setup.quick else 10):
            crashed, _ = evaluate(evaluator, CRASHES)
            result, _ = evaluate(evaluator, good)
            usual = crashed.status is Status.CRASHED and result.correct
            ready.append(sum(result.stage_s[s] for s in stages) if usual else math.inf)
    setup.claim("respawn", "new process ready after a crash", passed=max(ready) < target,
                expected=f"< {target:g} s each time",
                got=f"{max(ready):.3f} s at worst, {percentile(ready, 0.5):.3f} s median", value=max(ready),
                unit="s", n=len(ready), seconds=time.monotonic() - begin)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
