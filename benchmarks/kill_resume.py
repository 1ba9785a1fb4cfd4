"""Kill a running search at random moments and go on each time: `benchmarks/results/kill_resume.md`.

    python benchmarks/kill_resume.py [--kills 20] [--problem cpu/map_id] [--out DIR]

The search is the real one (`kernelevolve run`, then `kernelevolve resume`), killed with SIGKILL. A node counts as
acknowledged once the search has said so on stderr. After each kill: is every acknowledged node in the store, did every
process of the search go, and does the search continue?
"""

from __future__ import annotations

import argparse
import datetime
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from kernelevolve.store import Workspace

STUDY = "killed"


def descendants(root: int) -> set[int]:
    """Every process below `root`, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found - {root}


def alive(pid: int) -> bool:
    """Whether a process exists, a zombie included."""
    return Path(f"/proc/{pid}").exists()


def run_and_kill(arguments: list[str], after_s: float) -> tuple[set[int], set[int], float]:
    """Start a search and kill it: acknowledged nodes, processes it had, seconds until all of them were gone."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kernelevolve", *arguments], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    acknowledged: set[int] = set()

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if match := re.search(r": \d+/\d+ node (\d+) ", line):
                acknowledged.add(int(match[1]))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        process.wait(after_s)
    except subprocess.TimeoutExpired:
        children = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
    else:
        children = set()
    killed = time.monotonic()
    while any(map(alive, children)) and time.monotonic() - killed < 10:
        time.sleep(0.02)
    gone_s = time.monotonic() - killed
    listener.join(5)
    return acknowledged, {p for p in children if alive(p)}, gone_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--problem", default="cpu/map_id")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        space = Workspace(folder)
        known: set[int] = set()
        for kill in range(1, args.kills + 1):
            after_s = rng.uniform(2.0, 16.0)
            begun = STUDY in space.studies()
            command = ["resume", STUDY] if begun else ["run", args.problem, "--name", STUDY]
            acknowledged, left, gone_s = run_and_kill([*command, "--steps", "1000", "--workspace", folder], after_s)
            known |= acknowledged
            nodes = space.study(STUDY).nodes if STUDY in space.studies() else {}
            missing = known - set(nodes)
            rows.append((kill, after_s, len(acknowledged), len(nodes), len(missing), len(left), gone_s))
            print(f"kill {kill}: after {after_s:.1f} s, {len(nodes)} nodes, {len(missing)} lost", flush=True)
        resume = [sys.executable, "-m", "kernelevolve", "resume", STUDY, "--steps", "3", "--workspace", folder]
        last = subprocess.run(resume, capture_output=True, text=True)
        study = space.study(STUDY)
        numbers = sorted(study.nodes)
        statuses = Counter(n.status.value for n in study.nodes.values())
    lost = sum(r[4] for r in rows)
    left_over = sum(r[5] for r in rows)
    lines = [
        "# kill -9 and resume",
        "",
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, `python benchmarks/kill_resume.py --kills {args.kills} "
        f"--problem {args.problem}`",
        "",
        f"- acknowledged nodes: {len(known)}; lost: {lost}; processes left after 10 s: {left_over}",
        f"- longest time until every process of a killed search was gone: {max(r[6] for r in rows):.2f} s",
        f"- afterwards `kernelevolve resume` did 3 more steps: exit code {last.returncode}; "
        f"{len(numbers)} nodes numbered without a gap: {numbers == list(range(1, len(numbers) + 1))}; "
        f"by status: {dict(statuses)}",
        "",
        "| kill | after (s) | acknowledged in this run | nodes in the store | acknowledged but missing "
        "| processes left | all gone after (s) |",
        "|---|---|---|---|---|---|---|",
        *[f"| {k} | {a:.1f} | {n} | {s} | {m} | {p} | {g:.2f} |" for k, a, n, s, m, p, g in rows],
    ]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "kill_resume.md").write_text("\n".join(lines) + "\n")
    sys.exit(0 if lost == left_over == last.returncode == 0 else 1)


if __name__ == "__main__":
    main()
