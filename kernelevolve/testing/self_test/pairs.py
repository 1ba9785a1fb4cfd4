"""Kernels whose place is known beforehand: one that does the work twice, a copy of the reference, a fused one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernelevolve.evaluation import Evaluator
from kernelevolve.records import Interval, Proposal
from kernelevolve.search.fitness import pooled_by_baseline
from kernelevolve.testing.self_test.record import Outcome, Row
from kernelevolve.testing.self_test.setup import Setup
from kernelevolve.views.verdict import verdict

PROBLEM = '''"""A softmax written out: five passes over memory."""

import torch

rows, columns = {rows}, {columns}


class Model(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return e / e.sum(dim=-1, keepdim=True)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
'''

SLOWER = '''"""Does the work twice."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for _ in range(2):
            e = torch.exp(x - x.amax(dim=-1, keepdim=True))
            y = e / e.sum(dim=-1, keepdim=True)
        return y
'''

FASTER = '''"""The same function in one fused kernel."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
'''

PAIRS = (("does the work twice", "loss"), ("copy of the reference", "tie"), ("fused", "win"))
FRESH = 3
"""Fresh candidate and baseline processes per measurement, as for the numbers in a report."""


def run(setup: Setup) -> None:
    """The noise floor, and the three pairs, judged by the rule that judges what a report shows."""
    side = 1024 if setup.platform.name == "cpu" else 4096
    problem = PROBLEM.format(rows=side, columns=side)
    sources = (SLOWER, problem.replace("class Model(", "class ModelNew("), FASTER)
    # All sides find the same caches, so nothing has to be flushed: the time goes into samples.
    with setup.evaluator(problem, time_s=0.5 if setup.quick else 1.0, baseline_time_s=2.0,
                         flush_bytes=2**20) as evaluator:
        assert evaluator.baseline is not None
        floor = evaluator.baseline.noise_floor
        setup.add(Row("noise", "noise floor", "–", f"{floor:.2%}", Outcome.MEASURED,
                      value=100 * floor, unit="%", n=len(evaluator.baseline.again.samples_ms),
                      note="how far the interval of two equal sides strays from 1; smaller gains are ties",
                      seconds=evaluator.baseline.start_s))
        begin = time.monotonic()
        found = _measure(evaluator, sources)
        for i, (name, expected) in enumerate(PAIRS):
            told, ratio, note = found[i]
            if told != expected:  # once more: a passing load goes away, a wrong rule does not
                again, ratio, note = _measure(evaluator, sources[i : i + 1])[0]
                told, note = again, f"measured twice: {told}, {again}; {note}"
            got = f"{told}, {ratio.value:.3f}× [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else told
            setup.claim("pair", name, passed=told == expected, expected=expected, got=got, note=note,
                        seconds=time.monotonic() - begin, value=ratio.value if ratio else None, unit="× eager",
                        n=FRESH)
            begin = time.monotonic()


def _measure(evaluator: Evaluator, sources: Sequence[str]) -> list[tuple[str, Interval | None, str]]:
    """Per source: "win", "tie", "loss" or its status; the ratio to eager; what went wrong, if anything."""
    answers = []
    for results in evaluator.confirm(*(Proposal(s, "pytorch", "self-test") for s in sources), n=FRESH):
        bad = next((r for r in results if not r.correct), None)
        ratio = None if bad else pooled_by_baseline(results)["eager"]
        word = bad.status.value if bad else verdict(ratio, results[0].noise_floor)
        answers.append((word, ratio, bad.detail if bad else f"{FRESH} fresh processes"))
    return answers
