"""What each isolation level costs per candidate, all levels measured in turns."""

from __future__ import annotations

import contextlib
import statistics
import time

from kernelevolve.evaluation import isolation
from kernelevolve.testing import villains
from kernelevolve.testing.self_test.record import Outcome, Row
from kernelevolve.testing.self_test.setup import Setup, control, evaluate


def run(setup: Setup) -> None:
    """Start and end of a candidate's process, and a whole evaluation of the control, at every level that is here."""
    source = villains.problem_source()
    good = control(setup, "softmax")
    edges: dict[str, list[float]] = {}
    wholes: dict[str, list[float]] = {}
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        evaluators = {}
        for name, level in isolation.LEVELS.items():
            here, reason = level.available()
            if not here:
                setup.add(Row("overhead", name, "–", "not here", Outcome.NOT_RUN, note=reason))
                continue
            evaluators[name] = stack.enter_context(setup.evaluator(source, isolation=name))
            evaluate(evaluators[name], good)  # the first candidate may start a server
        for i in range(4 if setup.quick else 16):
            order = list(evaluators) if i % 2 == 0 else list(reversed(evaluators))
            for name in order:
                result, seconds = evaluate(evaluators[name], good)
                if not result.correct:
                    setup.claim("overhead", name, passed=False, expected="correct", got=result.status.value,
                                note=result.detail)
                    continue
                inner = sum(s for stage, s in result.stage_s.items() if stage != "start")
                edges.setdefault(name, []).append(seconds - inner)
                wholes.setdefault(name, []).append(seconds - result.stage_s.get("wait", 0.0))
    spent = (time.monotonic() - begin) / max(1, 2 * len(edges))
    for name in edges:
        n = len(edges[name])
        edge, whole = statistics.median(edges[name]), statistics.median(wholes[name])
        added = f"{1e3 * (edge - statistics.median(edges['process'])):+.1f} ms against process; " \
            if "process" in edges and name != "process" else ""
        setup.add(Row("overhead", f"{name}: start and end", "–", f"{1e3 * edge:.1f} ms", Outcome.MEASURED, spent,
                      f"{added}median of {n}, levels in turns", 1e3 * edge, "ms", n))
        setup.add(Row("overhead", f"{name}: whole evaluation", "–", f"{whole:.3f} s", Outcome.MEASURED, spent,
                      f"the control: start, build, check, time, end; median of {n}", whole, "s", n))
