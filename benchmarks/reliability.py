"""Can its verdicts be believed, and does it survive: `benchmarks/results/reliability.{csv,md}`.

    python benchmarks/reliability.py [--platform cpu] [--isolation process bubblewrap] [--part villains …] [--quick]
    python benchmarks/reliability.py --merge FILE.csv …

One row per figure, lane and isolation level. A run replaces its own rows in the table and leaves the others, so that
parts, levels and machines can be run apart; `--merge` takes the rows of another machine's table. The store's figures
come from `store_faults.py`, those of the honest kernels from what `strict.py` has written.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import datetime
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernelevolve import platforms
from kernelevolve.errors import KernelEvolveError
from kernelevolve.testing.self_test import Outcome, Row, SelfTest, self_test

RESULTS = Path(__file__).parent / "results"
PARTS = ("villains", "unread", "honest", "store", "secrets", "markup")
"""`villains` is the whole self-test; `unread` its villains again, with the reading of sources switched off."""
ANY = "any"
"""Lane or level of a figure that does not depend on it."""
NOT_MEASURED = (
    ("Longest time without progress under a stalled model server", "<= proposal deadline + 5 s",
     "there is no operator that asks a model yet: issue 6"),
    ("Requests made after a spend cap", "0", "as above: issue 6"),
    ("Soak: mean time between manual interventions", ">= 24 h", "needs a day of searching with a model: issue 6"),
    ("False time-outs (sleep, load) in soak", "0", "as above: issue 6"),
    ("Power loss, Windows, macOS, virtual machines", "-", "no machine to try them on; SECURITY.md promises nothing"),
)


@dataclasses.dataclass(frozen=True)
class Figure:
    """One line of the table."""

    figure: str
    lane: str
    isolation: str
    value: str
    target: str = ""
    n: int = 0
    ok: str = ""
    """"yes", "no", or "" where nothing was promised."""
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What a new measurement replaces."""
        return self.figure, self.lane, self.isolation


FIELDS = tuple(f.name for f in dataclasses.fields(Figure))


def read(path: Path) -> list[Figure]:
    """The rows of a table; none when there is no file. Columns may be missing, unknown ones are left out."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        found = [{k: v or "" for k, v in row.items() if k in FIELDS} for row in csv.DictReader(file)]
    return [Figure(**{**row, "n": int(row.get("n") or 0)}) for row in found]


def merged(old: Iterable[Figure], new: Iterable[Figure]) -> list[Figure]:
    """All rows, the new ones in place of old ones with the same figure, lane and level; order of first appearance."""
    table = {row.key: row for row in old}
    for row in new:
        table[row.key] = row
    return list(table.values())


def write(path: Path, rows: Iterable[Figure]) -> None:
    """Write the table in one step: who reads it meanwhile sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".csv.part")
    with half.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(dataclasses.asdict(row) for row in rows)
    half.replace(path)


def from_self_test(found: SelfTest) -> list[Figure]:
    """The figures of a self-test."""
    lane, level = found.platform, found.isolation

    def figure(name: str, row: Row, target: str, value: str = "") -> Figure:
        judged = {Outcome.PASSED: "yes", Outcome.FAILED: "no"}.get(row.outcome, "")
        told = value or (f"{row.value:.4g} {row.unit}".strip() if row.value is not None else row.got)
        return Figure(name, lane, level, told, target, row.n, judged, row.note)

    names = {
        ("control", "status after a villain"): ("Control after a villain: status right", "100 %"),
        ("kill", "kill latency p50"): ("Kill latency beyond the limit, p50", "< 0.5 s"),
        ("kill", "kill latency p99"): ("Kill latency beyond the limit, p99", "< 2 s"),
        ("left over", "processes"): ("Processes left 2 s after", "0"),
        ("left over", "files"): ("Files left 2 s after", "0"),
        ("left over", "device memory"): ("Device memory left 2 s after", "< 1 MiB over the start"),
        ("respawn", "new process ready after a crash"): ("Worker respawn to ready, worst",
                                                         "< 1 s" if lane == "cpu" else "< 10 s"),
        ("memory", "growth while a candidate prints 1 GB"): ("Parent memory growth under 1 GB of output", "< 50 MB"),
        ("noise", "noise floor"): ("Noise floor", ""),
    }
    rows = []
    for row in found.rows:
        if (row.part, row.name) in names:
            rows.append(figure(names[row.part, row.name][0], row, names[row.part, row.name][1]))
        elif (row.part, row.name) == ("control", "time after a villain"):
            band = "10 %" if lane == "cpu" else "3 %"
            one = figure(f"Control after a villain: time within {band}", row, ">= 99 %, or the noise floor")
            reached = "yes" if row.value is not None and row.value >= 99 else "no"
            rows.append(dataclasses.replace(one, ok=reached, note=f"{row.got}; {row.expected}; {row.note}"))
        elif row.part == "pair":
            rows.append(figure(f"Known pair: {row.name}", row, row.expected, row.got))
        elif row.part == "overhead":  # its level is the one measured, not the one under test
            measured, _, what = row.name.partition(": ")
            rows.append(dataclasses.replace(figure(f"Overhead per candidate: {what or 'all'}", row, "measured"),
                                            isolation=measured))
    return rows + about_villains(found)


def about_villains(found: SelfTest, suffix: str = "") -> list[Figure]:
    """How many villains got their exact status, which were accepted, which this level does not stop."""
    lane, level = found.platform, found.isolation
    run = [r for r in found.rows if r.part == "villain" and r.outcome in (Outcome.PASSED, Outcome.FAILED)]
    wrong = [r for r in run if not r.ok]
    accepted = [r.name for r in run if r.got.split(" ")[0] == "correct" and r.expected.split(" ")[0] != "correct"]
    unpromised = [r.name for r in found.rows if r.part == "villain" and r.outcome is Outcome.UNPROMISED]
    if not run and not unpromised:
        return []
    right = len(run) - len(wrong)
    return [
        Figure(f"Villains given the exact expected status{suffix}", lane, level, f"{right} of {len(run)}", "100 %",
               len(run), "no" if wrong else "yes", "; ".join(f"{r.name}: {r.got}, not {r.expected}" for r in wrong)),
        Figure(f"Villains accepted as correct or as faster{suffix}", lane, level, str(len(accepted)), "0", len(run),
               "no" if accepted else "yes", ", ".join(accepted)),
        Figure(f"Villains that this level does not promise to stop{suffix}", lane, level, str(len(unpromised)),
               "stated", len(run) + len(unpromised), "", ", ".join(unpromised)),
    ]


def honest(results: Path = RESULTS) -> list[Figure]:
    """Honest kernels refused, from the table that `strict.py` wrote; one row per lane in it."""
    path = results / "strict.csv"
    if not path.is_file():
        return [Figure("Honest kernels refused by strict", "cpu", ANY, "not run", "<= 1 %",
                       note="benchmarks/strict.py writes benchmarks/results/strict.csv")]
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    figures = []
    for lane in sorted({row.get("lane") or row.get("platform") or "cpu" for row in rows}):
        mine = [row for row in rows if (row.get("lane") or row.get("platform") or "cpu") == lane]
        bad = [row for row in mine if not _passed(row)]
        share = 100 * len(bad) / len(mine)
        names = ", ".join(str(row.get("kernel") or row.get("name") or "?") for row in bad[:10])
        figures.append(Figure("Honest kernels refused by strict", lane, ANY, f"{share:.2f} %", "<= 1 %", len(mine),
                              "yes" if share <= 1 and len(mine) >= 200 else "no", names))
    return figures


def _passed(row: dict[str, str]) -> bool:
    verdict = next((row[name] for name in ("passed", "ok", "status", "strict") if row.get(name)), "")
    return verdict.lower() in ("true", "yes", "1", "correct", "passed")


def store() -> list[Figure]:
    """Kills, duplicates, resume, rebuild, a full disk and flipped bytes, from `store_faults.figures()`."""
    try:
        import store_faults
    except ImportError as error:
        return [Figure("Store figures", ANY, ANY, "not run", note=f"{error}")]
    found = []
    for row in store_faults.figures():
        data = row if isinstance(row, dict) else dataclasses.asdict(row)
        found.append(Figure(**{"lane": ANY, "isolation": ANY, **{k: _plain(k, v) for k, v in data.items()
                                                                 if k in FIELDS}}))
    return found


def _plain(name: str, value: Any) -> Any:
    if name == "n":
        return int(value or 0)
    return {True: "yes", False: "no", None: ""}[value] if value is None or isinstance(value, bool) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="cpu", help="lane: cpu, cuda, auto")
    parser.add_argument("--isolation", nargs="+", default=["auto"], help="levels to test, one after another")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given several times; all by default")
    parser.add_argument("--quick", action="store_true", help="a dozen villains and few repetitions")
    parser.add_argument("--merge", nargs="+", type=Path, default=[], help="take these tables' rows and run nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    path = args.out / "reliability.csv"
    if not args.merge:
        args.platform = platforms.resolve(args.platform).name
    if args.merge:
        for other in args.merge:
            write(path, merged(read(path), read(other)))
    else:
        measure(args, path)
    import reliability_page

    page = reliability_page.page(read(path), path.with_suffix(".md"), lane="" if args.merge else args.platform)
    path.with_suffix(".md").write_text(page, encoding="utf-8")
    sys.exit(1 if any(row.ok == "no" for row in read(path)) else 0)


def measure(args: argparse.Namespace, path: Path) -> None:
    """Run the parts; every part's rows are in the table as soon as it has ended."""
    parts = args.part or PARTS

    def keep(rows: Sequence[Figure]) -> None:
        write(path, merged(read(path), rows))
        for row in rows:
            print(f"{row.ok or '-':4}{row.figure} [{row.lane}, {row.isolation}]: {row.value} (target {row.target}) "
                  f"{row.note}", flush=True)

    def attempt(name: str, work: Callable[[], Sequence[Figure]]) -> None:
        begin = time.monotonic()
        try:
            keep(work())
        except (KernelEvolveError, ImportError) as error:
            traceback.print_exc()
            print(f"{name} could not be measured: {error}", flush=True)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)

    for level in args.isolation:
        if "villains" in parts:
            attempt(f"self-test, {level}", lambda level=level: from_self_test(
                self_test(args.platform, level, quick=args.quick)))
        if "unread" in parts:
            attempt(f"sources not read, {level}", lambda level=level: about_villains(
                self_test(args.platform, level, quick=args.quick, parts=["villains"], read_source=False),
                " (sources not read)"))
        if "secrets" in parts:
            import reliability_products

            attempt(f"planted key, {level}", lambda level=level: [
                Figure(**row) for row in reliability_products.planted_key(args.platform, level)])
    if "markup" in parts:
        import reliability_products

        attempt("markup", lambda: [Figure(**row) for row in reliability_products.active_markup()])
    if "honest" in parts:
        attempt("honest kernels", honest)
    if "store" in parts:
        attempt("store", store)


def today() -> str:
    """The date in UTC."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"


if __name__ == "__main__":
    main()
