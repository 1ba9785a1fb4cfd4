"""What bad problem files and bad candidates get: `benchmarks/results/bad_input.md`.

    python benchmarks/bad_input.py [--out DIR]

Every shipped villain is evaluated between two runs of an honest control; bad problem files are loaded, and what the
loader says is written down as it is.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from pathlib import Path

from kernelevolve.errors import KernelEvolveError
from kernelevolve.evaluation import Evaluator
from kernelevolve.problems import load
from kernelevolve.records import Problem, Proposal
from kernelevolve.settings import Settings
from kernelevolve.testing import villains

BODY = """import torch
n = 256
class Model(torch.nn.Module):
    def forward(self, x{more}):
        return {answer}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


def file(answer: str, inputs: str = "torch.randn(64, n)", more: str = "") -> str:
    """A small problem file."""
    return BODY.format(answer=answer, inputs=inputs, more=more)


FILES = {
    "syntax error": file("x +"),
    "no get_inputs": file("x * 2").replace("def get_inputs", "def inputs"),
    "NaN reference": file("(x - 10).log()"),
    "non-deterministic reference": file("x + torch.rand_like(x)"),
    "integer, boolean and several outputs": file("(x.argmax(-1), x > 0, x * 2)"),
    "aliased inputs": file("x + y", "*(lambda t: (t, t[:]))(torch.randn(64, n))", ", y"),
    "reference changes its input": file("x.mul_(2)"),
    "an import that never ends": "while True:\n    pass\n",
    "constant output": file("torch.ones(64)"),
}


def one_line(text: str, limit: int = 230) -> str:
    """Fit for a table cell."""
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= limit else text[:limit] + " …"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    lines = [
        "# Bad input",
        "",
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, `python benchmarks/bad_input.py`",
        "",
        "## Problem files",
        "",
        "| file | what the loader says |",
        "|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, source in FILES.items():
            path = Path(folder) / "problem.py"
            path.write_text(source)
            try:
                problem = load(path, timeout_s=20)
                outputs = ", ".join(f"{o.dtype} {list(o.shape)}" for o in problem.outputs)
                said = f"accepted; outputs {outputs}" + (f"; weak: {problem.weak}" if problem.weak else "")
            except KernelEvolveError as error:
                said = f"{type(error).__name__}: {error}"
            lines.append(f"| {name} | {one_line(said.replace(folder + '/', ''))} |")
            print(name, flush=True)
    rows, exact, unharmed = [], 0, 0
    problem = Problem(id="villains/softmax", source=villains.problem_source(), code_hash="0")
    settings = Settings(build_timeout_s=10, call_timeout_s=3, time_s=0.5, baselines=("eager",))
    everyone = villains.load("cpu")
    with Evaluator(problem, settings=settings) as evaluator:
        control = evaluator.evaluate(Proposal(villains.good_source(), "cpp", "hand"))
        for villain in everyone:
            begin = time.monotonic()
            result = evaluator.evaluate(Proposal(villain.source, "", "hand"))
            took = time.monotonic() - begin
            after = evaluator.evaluate(Proposal(villains.good_source(), "cpp", "hand"))
            exact += result.status is villain.expect
            unharmed += after.correct
            ratio = after.ratios["eager"] if after.correct else None
            shown = f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio else after.detail
            # Paths in a traceback are this machine's; the message is the candidate's.
            detail = one_line(result.detail.partition("Traceback")[0], 110)
            cells = (villain.name, villain.expect.value, result.status.value, detail, f"{took:.1f}", shown)
            rows.append(f"| {' | '.join(cells)} |")
            print(villain.name, result.status.value, shown, flush=True)
    before = control.ratios["eager"]
    lines += [
        "",
        "## Candidates",
        "",
        f"{exact} of {len(everyone)} got the expected status; the control afterwards was correct {unharmed} of "
        f"{len(everyone)} times. Control before any of them: {before.value:.2f} [{before.low:.2f}, {before.high:.2f}] "
        "times eager. Limits in this run: build 10 s, one call 3 s.",
        "",
        "| candidate | expected | came | detail | seconds | control afterwards (ratio to eager) |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "bad_input.md").write_text("\n".join(lines) + "\n")
    sys.exit(0 if exact == unharmed == len(everyone) else 1)


if __name__ == "__main__":
    main()
