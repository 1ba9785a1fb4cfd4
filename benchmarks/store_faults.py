"""Kill, fill and damage a study's store in every way known here: `benchmarks/results/store_faults.{csv,md}`.

    python benchmarks/store_faults.py [--part kills points workers disk flips size] [--kills 500] [--out DIR]

The searches are the real loop and the real store around candidates that nobody runs (only `workers` builds and times
real ones), so that a kill costs half a second; `kill_resume.py` kills a search with real candidates. Each part
replaces its own rows in the table. `figures()` reads them back.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one thread: this process forks
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent)]

RESULTS = Path(__file__).parent / "results"
FIELDS = ("part", "figure", "value", "target", "n", "ok", "note", "date", "command", "machine")
PARTS = ("kills", "points", "workers", "disk", "flips", "size")


def figures(path: Path = RESULTS / "store_faults.csv") -> list[dict[str, Any]]:
    """Earlier results: dictionaries with figure, value, target, n, ok ("yes", "no" or ""), note; "not run" for none."""
    if not path.is_file():
        return [{"figure": "Store figures", "value": "not run", "target": "", "n": 0, "ok": "",
                 "note": "run python benchmarks/store_faults.py"}]
    keys = ("figure", "value", "target", "n", "ok", "note")
    found = [{**{k: r[k] for k in keys}, "n": int(r["n"])} for r in _read(path)]
    return found + _real_kills(path.parent / "kill_resume.md")


def _real_kills(page: Path) -> list[dict[str, Any]]:
    """What `kill_resume.py` found with real candidates."""
    text = page.read_text() if page.is_file() else ""
    match = re.search(r"acknowledged nodes: (\d+); lost: (\d+); processes left after 10 s: (\d+)", text)
    if not match:
        return []
    told, lost, left = match.groups()
    kills = len(re.findall(r"^\| \d+ \|", text, re.M))
    return [{"figure": "Acknowledged nodes lost in kills of a search with real candidates", "value": lost,
             "target": "0", "n": kills, "ok": "yes" if lost == "0" else "no", "note": f"{told} acknowledged"},
            {"figure": "Processes left 10 s after such a kill", "value": left, "target": "0", "n": kills,
             "ok": "yes" if left == "0" else "no", "note": ""}]


def _read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """The table, and a page of it for people."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, FIELDS)
        table.writeheader()
        table.writerows(rows)
    ran = sorted({(r["date"], r["command"], r["machine"]) for r in rows})
    lines = ["# Faults of the store", "", *[f"- {date}, `{command}`, {machine}" for date, command, machine in ran], "",
             "A node is acknowledged when the call that recorded it returned; the driver wrote that to a file of its "
             "own, on the disk, before it went on.",
             "Afterwards every acknowledged node must be in the store once, unchanged and in order. A node that was "
             "under way is marked lost.", "",
             "| figure | value | target | n | met | note |", "|---|---|---|---|---|---|",
             *[f"| {r['figure']} | {r['value']} | {r['target']} | {r['n']} | {r['ok']} | {r['note']} |" for r in rows],
             *[f"| {r['figure']} | {r['value']} | {r['target']} | {r['n']} | {r['ok']} | {r['note']} (kill_resume.md) |"
               for r in _real_kills(path.parent / "kill_resume.md")]]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def machine() -> str:
    """Model and cores, nothing that names the machine."""
    from kernelevolve import platforms

    facts = platforms.resolve("cpu").facts()
    return f"{facts['model']}, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    import store_faults_parts as parts

    work: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
        "kills": lambda folder: parts.kills(folder, args.kills), "points": parts.points, "workers": parts.workers,
        "disk": parts.disk, "flips": parts.flips, "size": parts.size,
    }
    path, failed = args.out / "store_faults.csv", False
    chosen = f" --part {' '.join(args.part)}" if args.part != list(PARTS) else ""
    command = f"python benchmarks/store_faults.py{chosen}"
    for part in PARTS:
        if part not in args.part:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = work[part](Path(folder))
        about = {"part": part, "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "command": command,
                 "machine": machine()}
        rows = [r for r in _read(path) if r["part"] != part] + [{**r, **about} for r in found]
        write(path, sorted(rows, key=lambda r: PARTS.index(r["part"])))
        for r in found:
            print(f"{r['figure']}: {r['value']} (n = {r['n']}) {r['note']}", flush=True)
        failed |= any(r["ok"] == "no" for r in found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
