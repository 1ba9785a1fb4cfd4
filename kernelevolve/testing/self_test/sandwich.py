"""Good, villain, good: each villain gets its own status, and the next candidate is measured as if nothing had happened.

The control is the problem's own model as a candidate. Its ratio to eager is 1 by construction, loads of the machine hit
both sides alike, and the two differ in one thing: eager's process is older than the villain, the control's is younger.
A control whose time is outside the band is measured again, up to twice: a passing load goes away, what a villain left
behind stays. It fails when even its 95 % interval lies outside: a machine that cannot tell is not blamed on a villain,
and the summary counts both. The honest kernel that is shipped beside the villains runs before and after all of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from typing import Any

from kernelevolve.errors import KernelEvolveError
from kernelevolve.evaluation import Evaluator
from kernelevolve.records import Result, Status
from kernelevolve.testing import villains
from kernelevolve.testing.self_test.record import Outcome, Row
from kernelevolve.testing.self_test.setup import Setup, control, evaluate
from kernelevolve.testing.villains import Villain

AGAIN = 2
"""How often a control outside its band is measured again."""
_KINDS = (Status.DISHONEST, Status.WRONG_VALUE, Status.CRASHED, Status.TIMEOUT, Status.RESOURCE_LIMIT, Status.SUSPECT,
          Status.MUTATED_INPUT, Status.OUT_OF_MEMORY, Status.COMPILE_ERROR, Status.DISK_LIMIT, Status.COMPILE_TIMEOUT)


@dataclasses.dataclass
class Controls:
    """What the controls after villains showed."""

    total: int = 0
    right: int = 0
    """With their usual status."""
    within: int = 0
    """Within the band, by their median."""
    touching: int = 0
    """Outside by their median, but not by their 95 % interval."""
    first: int = 0
    """Within the band at the first measurement."""
    worst: float = 0.0
    """Largest change that remained, as a share of 1."""
    floor: float = 0.0
    """The widest noise floor that stood in for the band."""


def a_dozen(found: Sequence[Villain], level: str) -> list[Villain]:
    """Twelve villains of different kinds that this level stops: one of each status in turn, by `_KINDS`.

    Those on the usual problem and with the usual limits come first: they share an evaluator.
    """
    kinds: dict[Status, list[Villain]] = {kind: [] for kind in _KINDS}
    for villain in sorted(found, key=lambda v: (bool(v.settings), v.problem != "softmax")):
        if villain.runs_at(level):
            kinds.setdefault(villain.expect, []).append(villain)
    turns = itertools.zip_longest(*kinds.values())
    return [villain for turn in turns for villain in turn if villain is not None][:12]


def run(setup: Setup, found: Sequence[Villain]) -> Controls:
    """Evaluate every villain that the level in use promises to stop, each between two controls."""
    controls = Controls()
    groups: dict[str, list[Villain]] = {}
    for villain in found:
        if villain.runs_at(setup.isolation):
            groups.setdefault(repr((villain.problem, sorted(villain.settings.items()))), []).append(villain)
        else:
            setup.add(Row("villain", villain.name, villain.expect.value, f"needs isolation {villain.level}",
                          Outcome.UNPROMISED, note="not run: nothing at this level would stop what it does"))
    for group in groups.values():
        try:
            _run_group(setup, group, controls)
        except KernelEvolveError as error:
            told = {row.name for row in setup.rows if row.part == "villain"}
            for villain in (v for v in group if v.name not in told):
                setup.claim("villain", villain.name, passed=False, expected=villain.expect.value, got="no verdict",
                            note=f"the evaluator failed: {error}")
    _summarise(setup, controls)
    return controls


def _run_group(setup: Setup, group: Sequence[Villain], controls: Controls) -> None:
    """The villains of one problem and one setting, in one evaluator."""
    problem, changes = group[0].problem, dict(group[0].settings)
    source, copy = villains.problem_source(problem, setup.folder), villains.control_source(problem, setup.folder)
    good = control(setup, problem)
    with setup.evaluator(source, **changes) as evaluator:
        ratios: list[float] = []
        for candidate in (good, *[copy] * (3 if setup.quick else 5)):
            result, _ = evaluate(evaluator, candidate)
            if not result.correct:
                raise KernelEvolveError(f"a control is {result.status.value} before any villain: {result.detail}")
            ratios += [result.ratios["eager"].value] if candidate is copy else []
        # Sandwiches without a villain: how far honest repetitions stray, no villain can be blamed for.
        strays = max(abs(r / statistics.median(ratios) - 1) for r in ratios)
        floor = max(result.noise_floor, strays)
        controls.floor = max(controls.floor, floor)
        for villain in group:
            _one(setup, evaluator, villain, copy, ratios, max(setup.band, floor), controls)
        result, seconds = evaluate(evaluator, good)
        setup.claim("control", f"honest kernel after all villains ({problem})", passed=result.correct,
                    expected="correct", got=result.status.value, seconds=seconds, note=result.detail)


def _one(setup: Setup, evaluator: Evaluator, villain: Villain, copy: str, ratios: list[float], band: float,
         controls: Controls) -> None:
    expect, stage = villain.expect, villain.stage
    if not setup.read_source:
        expect, stage = villain.runtime or expect, villain.runtime_stage
    failed: list[str] = []
    evaluator.on_stage = lambda name, seconds, status: failed.append(name) if status != "ok" else None
    result, seconds = evaluate(evaluator, villain.source)
    evaluator.on_stage = None
    reached = failed[-1] if failed else ""
    passed = result.status is expect and stage in ("", reached)
    row: dict[str, Any] = {"expected": _at(expect, stage), "got": _at(result.status, reached if stage else "")}
    usual = statistics.median(ratios)
    after, tries = _control(evaluator, copy, usual, band)
    controls.total += 1
    fine = after.correct
    if after.correct:
        ratio = after.ratios["eager"]
        change = ratio.value / usual - 1
        within = abs(change) <= band
        fine = within or (ratio.low <= usual * (1 + band) and ratio.high >= usual * (1 - band))
        controls.right += 1
        controls.within += within
        controls.touching += fine and not within
        controls.first += within and tries == 1
        controls.worst = max(controls.worst, abs(change))
        told = f"correct, time {change:+.1%}" + (f" at measurement {tries}" if tries > 1 else "")
        if within:
            ratios.append(ratio.value)
        else:
            told += f", interval {ratio.low / usual - 1:+.1%} to {ratio.high / usual - 1:+.1%}"
    else:
        told = f"{after.status.value}: {after.detail}"
    notes = [villain.act.rstrip(".") if passed else result.detail.partition("\n")[0], f"control after it: {told}"]
    setup.claim("villain", villain.name, passed=passed, seconds=seconds, note="; ".join(filter(None, notes)), **row)
    if not fine:
        setup.claim("control", f"after {villain.name}", passed=False,
                    expected=f"correct, time within ±{band:.1%} of the controls before", got=told)


def _control(evaluator: Evaluator, copy: str, usual: float, band: float) -> tuple[Result, int]:
    """The control's result, and how many measurements it took to come within the band around `usual`."""
    tries = 0
    while True:
        tries += 1
        result, _ = evaluate(evaluator, copy)
        if not result.correct or abs(result.ratios["eager"].value / usual - 1) <= band or tries > AGAIN:
            return result, tries


def _summarise(setup: Setup, c: Controls) -> None:
    if not c.total:
        return
    setup.claim("control", "status after a villain", passed=c.right == c.total, expected=f"correct {c.total} times",
                got=f"correct {c.right} times", value=100 * c.right / c.total, unit="%", n=c.total)
    least = f"±{setup.band:.0%}, or ±{c.floor:.1%} where the noise floor is larger" if c.floor > setup.band else \
        f"±{setup.band:.0%} (noise floor {c.floor:.1%})"
    setup.claim("control", "time after a villain", passed=c.within + c.touching == c.total,
                expected=f"within {least}",
                got=f"{c.within} of {c.right} within, {c.touching} not told apart, worst {c.worst:.1%}",
                n=c.right, unit="%", value=100 * c.within / max(c.right, 1),
                note=f"{c.first} at the first measurement; ratio to eager against the median of the controls before")


def _at(status: Status, stage: str) -> str:
    return f"{status.value} at {stage}" if stage else status.value
