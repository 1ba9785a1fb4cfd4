"""Search every shipped CPU problem, and write what came out: `benchmarks/results/cpu_suite.{csv,md}`.

    python benchmarks/cpu_suite.py [--steps 24] [--problem cpu/softmax …] [--workspace DIR] [--out DIR]

Per problem: a greedy search, and a random one at the same budget beside it. All ratios in the table are
t_reference / t_candidate from paired rounds of interleaved samples, re-measured in fresh processes after the search
(so that a lucky sample is not called best): the best of the search, the best of its first three drafts, and
the best of the random search alike. A run that was stopped goes on where it was: finished studies are not repeated.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import math
import platform
import statistics
import sys
import time
from pathlib import Path

import kernelevolve as ke
from kernelevolve.errors import KernelEvolveError, StudyError
from kernelevolve.problems import suite
from kernelevolve.records import Interval, Node

FIELDS = (
    "problem", "status", "steps", "eager_ratio", "compile_ratio", "best_ratio", "low", "high", "reference",
    "first3_ratio", "random_ratio", "own_kernels", "move", "noise_floor", "median_us", "build_s", "check_s", "time_s",
    "profile_s", "write_s", "framework_share",
)  # fmt: skip


def confirm(study: ke.Study, also: Node | None = None, finalists: int = 3) -> None:
    """Measure the finalists (and one more node) again in fresh processes, then whoever leads until the leader is one
    of those: what `Study.run` does at its end, with the drafts' best measured beside them.
    """
    pending = {n.number for n in study.tree.ranked()[:finalists]} | ({also.number} if also else set())
    study.confirm(*sorted(n for n in pending if not study.tree.node(n).result.confirmed))
    for _ in range(3):
        if not study.best.result.confirmed:
            study.confirm(study.best.number)


def confirmed(study: ke.Study, number: int) -> Interval:
    """A node's ratio to the fastest baseline in fresh processes."""
    ratio = study.tree.node(number).result.ratio
    assert ratio is not None
    return ratio


def fastest(nodes: list[Node]) -> Node | None:
    """The correct node with the largest fitness."""
    right = [n for n in nodes if n.result.correct]
    return max(right, key=lambda n: n.fitness) if right else None


def run_one(problem: str, args: argparse.Namespace) -> dict[str, object]:
    """Both searches on one problem; a row of the table."""
    row: dict[str, object] = {"problem": problem}
    for policy in ("greedy", "random"):
        name = f"suite-{policy}-{problem.replace('/', '-')}"
        study = ke.Study.open_or_create(
            problem, name=name, policy=policy, seed=args.seed, workspace=args.workspace, rules="strict",
            settings=ke.Settings(time_s=args.time_s),
        )  # fmt: skip
        with study:
            done = len(study.tree.nodes)
            if done < args.steps:
                study.run(steps=args.steps - done, confirm=False)
            first = fastest([n for n in study.tree.nodes if n.number <= 3]) if policy == "greedy" else None
            try:
                confirm(study, also=first)
                node = study.best
            except StudyError as error:
                row.setdefault("status", "nothing correct")
                print(f"  {policy}: {error}", flush=True)
                continue
            if policy == "greedy":
                row |= describe(study, node, confirmed(study, node.number))
                row["first3_ratio"] = round(confirmed(study, first.number).value, 3) if first else 0.0
            else:
                row["random_ratio"] = round(confirmed(study, node.number).value, 3)
    return row


def describe(study: ke.Study, node: Node, ratio: Interval) -> dict[str, object]:
    """Columns that come from the greedy search."""
    ratios = node.result.final
    measured = [n.result.stage_s for n in study.tree.nodes if n.result.correct]
    stages = {
        f"{stage}_s": round(statistics.median(s.get(stage, 0.0) for s in measured), 3)
        for stage in ("build", "check", "time", "profile")
    }
    timing = next(t for t in node.result.timings if t.name == "candidate")
    return {
        "status": node.status.value,
        "steps": len(study.tree.nodes),
        "eager_ratio": round(ratios["eager"].value, 3),
        "compile_ratio": round(ratios["compile"].value, 3) if "compile" in ratios else "",
        "best_ratio": round(ratio.value, 3),
        "low": round(ratio.low, 3),
        "high": round(ratio.high, 3),
        "reference": node.result.reference,
        "own_kernels": node.proposal.own_kernels,
        "move": node.proposal.move,
        "noise_floor": round(node.result.noise_floor, 4),
        "median_us": round(timing.median_ms * 1000, 1),
        **stages,
        "write_s": round(statistics.median(n.proposal.write_s for n in study.tree.nodes), 4),
        "framework_share": round(study.cost["framework_share"], 4),
    }


def geomean(values: list[float]) -> float:
    """Geometric mean."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def markdown(rows: list[dict[str, object]], args: argparse.Namespace, environment: dict[str, object]) -> str:
    """The page beside the table."""
    good = [r for r in rows if r.get("status") == "correct"]
    ratio = {r["problem"]: float(r["best_ratio"]) for r in good}
    wins = [r for r in good if float(r["low"]) > 1 + float(r["noise_floor"])]
    losses = [r for r in good if float(r["high"]) < 1 - float(r["noise_floor"])]
    beats_first = [r for r in good if float(r["best_ratio"]) > float(r["first3_ratio"])]
    beats_random = [r for r in good if "random_ratio" in r and float(r["best_ratio"]) > float(r["random_ratio"])]
    lines = [
        "# CPU suite",
        "",
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, `python benchmarks/cpu_suite.py --steps {args.steps}`, "
        "rule set strict.",
        "",
        f"- correct with own kernels: {len(good)} of {len(rows)}",
        f"- geomean of best_ratio over the fastest baseline (eager, torch.compile, REFERENCES): "
        f"**{geomean(list(ratio.values())):.3f}** (n = {len(good)} of {len(rows)}); "
        f"median {statistics.median(ratio.values()):.3f}",
    ]
    compiled = [r for r in good if r.get("compile_ratio") not in ("", None)]
    both = [min(float(r["eager_ratio"]), float(r["compile_ratio"])) for r in compiled]
    if both:
        lines.append(f"- geomean over min(eager, compile): **{geomean(both):.3f}** (n = {len(both)} of {len(rows)})")
    lines += [
        f"- wins (interval above 1 and above the noise floor): {len(wins)}; losses: {len(losses)}; "
        f"ties: {len(good) - len(wins) - len(losses)}",
        f"- greedy at step {args.steps} above the best of its first three drafts: {len(beats_first)} of {len(good)}; "
        f"above random search at the same budget: {len(beats_random)} of {len(good)}",
    ]
    if good:
        cost = {k: statistics.median(float(r[k]) for r in good) for k in ("build_s", "check_s", "time_s", "profile_s")}
        share = statistics.median(float(r["framework_share"]) for r in good)
        lines.append(
            "- one candidate, medians over problems: "
            + ", ".join(f"{k.removesuffix('_s')} {v:.2f} s" for k, v in cost.items())
            + f"; the framework's own share of the wall time: {100 * share:.1f} %"
        )
    header = "| problem | eager | compile | best (fastest baseline) | interval | first 3 drafts | random | what won |"
    lines += ["", header]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for r in sorted(rows, key=lambda r: -float(r.get("best_ratio", 0) or 0)):
        lines.append(
            f"| {r['problem']} | {r.get('eager_ratio', '')} | {r.get('compile_ratio', '')} | {r.get('best_ratio', '')} "
            f"({r.get('reference', r.get('status'))}) | {r.get('low', '')} to {r.get('high', '')} "
            f"| {r.get('first3_ratio', '')} | {r.get('random_ratio', '')} | {r.get('move', '')} |"
        )
    lines += ["", "Environment:", ""]
    lines += [f"- {key}: {value}" for key, value in environment.items() if not isinstance(value, (dict, list))]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-s", type=float, default=0.6, help="timing budget of one candidate's session")
    parser.add_argument("--problem", action="append", help="problem id; may be given several times; all by default")
    parser.add_argument("--workspace", type=Path, default=Path("kernelevolve-workspace"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, object]] = []
    environment: dict[str, object] = {"machine": platform.machine(), "python": platform.python_version()}
    for problem in args.problem or suite("cpu"):
        start = time.monotonic()
        print(f"{problem} …", flush=True)
        try:
            row = run_one(problem, args)
        except KernelEvolveError as error:
            row = {"problem": problem, "status": type(error).__name__}
            print(f"  {error}", flush=True)
        rows.append(row)
        print(f"  {row.get('best_ratio', row.get('status'))} in {time.monotonic() - start:.0f} s", flush=True)
        with (args.out / "cpu_suite.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, restval="")
            writer.writeheader()
            writer.writerows(rows)
    from kernelevolve.platforms import resolve

    environment |= dict(resolve("cpu").facts())
    (args.out / "cpu_suite.md").write_text(markdown(rows, args, environment))
    sys.exit(0 if all(r.get("status") == "correct" for r in rows) else 1)


if __name__ == "__main__":
    main()
