"""The page beside `reliability.csv`: the table in words, the machine, and what is not measured."""

from __future__ import annotations

import platform as host
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MACHINES = "Machines:"


def page(rows: Sequence[Any], path: Path, *, lane: str) -> str:
    """Markdown for the figures. Machines of other lanes are kept as `path` has them; `lane` "" adds none.

    Names of hosts and folders are never written.
    """
    from reliability import NOT_MEASURED, today

    machines = _known(path)
    if lane:
        machines[lane] = f"{_machine(lane)}; {today()}, `python benchmarks/reliability.py {_arguments()}`".rstrip()
    failed = [row for row in rows if row.ok == "no"]
    kept = [row for row in rows if row.ok == "yes"]
    lines = [
        "# Reliability", "",
        f"{len(kept)} of {len(kept) + len(failed)} figures with a target meet it.",
        "Each row is one figure in one lane at one isolation level; n is how many trials it stands on.", "",
    ]
    lines += [f"- **not met**: {r.figure} ({r.lane}, {r.isolation}): {r.value}, target {r.target}. {_cell(r.note)}"
              for r in failed]
    lines += [""] if failed else []
    for name in sorted({row.lane for row in rows}):
        lines += [f"## {_TITLES.get(name, name)}", "", "| figure | isolation | value | target | n | met | note |",
                  "|---|---|---|---|---|---|---|"]
        lines += ["| " + " | ".join(map(_cell, (r.figure, r.isolation, r.value, r.target, r.n or "", _WORDS[r.ok],
                                                r.note))) + " |" for r in rows if r.lane == name]
        lines.append("")
    lines += ["## Not measured", "", "| figure | target | why |", "|---|---|---|"]
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in NOT_MEASURED]
    lines += ["", MACHINES, "", *(f"- {name}: {text}" for name, text in sorted(machines.items()))]
    return "\n".join(lines) + "\n"


_TITLES = {"cpu": "On a CPU", "cuda": "On a GPU", "any": "Wherever it runs"}
_WORDS = {"yes": "yes", "no": "NO", "": "-"}


def _machine(lane: str) -> str:
    """Processor, cores, device and versions of this machine."""
    from kernelevolve import platforms
    from kernelevolve.versions import versions

    facts = platforms.resolve(lane).facts()
    cpu = {**platforms.resolve("cpu").facts()}
    parts = [f"{cpu.get('model', host.machine())}, {cpu.get('cores', '?')} cores"]
    if lane not in ("cpu", "auto"):
        parts.append(str(facts.get("model", lane)))
    return ", ".join([*parts, *(f"{k} {v}" for k, v in versions().items() if k in ("python", "torch", "duckdb"))])


def _arguments() -> str:
    """The options as given, without values that are folders."""
    words = ["…" if "/" in word else word for word in sys.argv[1:]]
    return shlex.join(words).replace("'…'", "…")


def _known(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    tail = path.read_text("utf-8").partition(f"\n{MACHINES}\n")[2]
    return dict(re.findall(r"^- (\w+): (.+)$", tail, re.MULTILINE))


def _cell(value: object) -> str:
    text = " ".join(str(value).split()).replace("|", "\\|")
    return text if len(text) <= 300 else text[:299] + "…"
