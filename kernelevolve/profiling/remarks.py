"""What the compiler said about each loop: vectorised and how wide, or not and why.

The remarks are those of `-fopt-info-vec`. A build that writes them beside its library (`-fopt-info-vec-all=kernel.opt`)
is read; otherwise the source is compiled once more, to nothing, with the flags that the candidate names.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelevolve.profiling.base import ContentCache, Profiler, Subject, missing
from kernelevolve.profiling.command import run
from kernelevolve.profiling.loops import Source, SourceLoop

FLAGS = ("-O3", "-march=native", "-fopenmp", "-fPIC")
"""Assumed when the candidate's module names none."""
SAFE_FLAG = re.compile(
    r"-O\w+|-m[\w.=-]+|-std=[\w+]+|-D\w+(?:=\w+)?|-fopenmp(?:-simd)?|-ffp-contract=\w+|-ffast-math|-fPIC"
    r"|-f(?:no-)?(?:math-errno|trapping-math|signed-zeros|associative-math|finite-math-only|reciprocal-math"
    r"|unsafe-math-optimizations|unroll-loops|strict-aliasing|tree-vectorize|vect-cost-model|semantic-interposition)"
)
"""A candidate's text chooses flags for a compiler in the user's own session: no plug-in, no file, no wrapper."""
MAX_TEXT_BYTES = 500_000
"""Of a source and of its remarks; a generated kernel has some 5 kB, its full remarks 50 kB."""
MAX_LOOPS = 30
TIMEOUT_S = 5.0

_REMARK = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?P<column>\d+): (?P<kind>optimized|missed): (?P<text>.*)$"
)
_WIDTH = re.compile(r"loop vectorized using (\d+) byte vectors")
_REASON = re.compile(r"^not vectorized:\s*")
_OUTER = re.compile(r"nested loop|loop nest|inner.?loop", re.IGNORECASE)


def explain(text: str, source: str) -> dict[str, Any]:
    """Loops of a source with the compiler's verdict on each.

    Keys: `loops` (line, text, function, innermost, explicit, bits, reason), `loops_left_out`, `vectorised`, `missed`
    (innermost loops that stayed scalar and are not written in vectors). A loop that the compiler says nothing about
    (unrolled, removed) has neither width nor reason and is not counted.
    """
    parsed = Source(source)
    bits: dict[SourceLoop, int] = {}
    reasons: dict[SourceLoop, str] = {}
    current: SourceLoop | None = None
    for kind, loop, message in _remarks(text, parsed):
        if width := _WIDTH.search(message):
            if loop is not None:
                bits[loop] = max(bits.get(loop, 0), 8 * int(width.group(1)))
        elif kind == "missed" and message.startswith("couldn't vectorize loop"):
            current = loop
            if loop is not None:
                reasons.setdefault(loop, "")
        elif kind == "missed" and current is not None and not reasons[current]:
            # The reason follows its verdict and may point into a header file: the verdict's loop is the one meant.
            reasons[current] = _REASON.sub("", message)[:200]
    rows: list[dict[str, Any]] = [
        {
            "line": loop.line,
            "text": loop.text,
            "function": loop.function,
            "innermost": loop.innermost,
            "explicit": loop.explicit,
            "bits": bits.get(loop, 0),
            "reason": "" if loop in bits else reasons[loop],
        }
        for loop in parsed.loops
        if loop in bits or loop in reasons
    ]
    missed = [row for row in rows if not row["bits"] and row["innermost"] and not row["explicit"]]
    missed = [row for row in missed if not _OUTER.search(row["reason"])]
    rows.sort(key=lambda row: (row not in missed, row["line"]))
    return {
        "vectorised": sum(bool(row["bits"]) for row in rows),
        "missed": len(missed),
        "loops": rows[:MAX_LOOPS],
        "loops_left_out": max(0, len(rows) - MAX_LOOPS),
    }


def _remarks(text: str, source: Source) -> Iterator[tuple[str, SourceLoop | None, str]]:
    for line in text.splitlines():
        if match := _REMARK.match(line):
            own = Path(match["file"]).suffix in (".cpp", ".cc", ".cxx")
            loop = source.at(int(match["line"]), int(match["column"])) if own else None
            yield match["kind"], loop, match["text"]


def flags(module: str) -> tuple[str, ...]:
    """Compiler flags that a candidate's module names: its string constants that are known to be harmless flags."""
    try:
        constants = [n.value for n in ast.walk(ast.parse(module)) if isinstance(n, ast.Constant)]
    except (SyntaxError, ValueError, RecursionError):
        return FLAGS
    words = [word for value in constants if isinstance(value, str) and len(value) < 400 for word in value.split()]
    found = tuple(dict.fromkeys(word for word in words if SAFE_FLAG.fullmatch(word)))
    return found if any(word.startswith("-O") for word in found) else FLAGS


class Remarks(Profiler):
    """The compiler's vectorisation remarks on kernel.cpp."""

    name = "remarks"
    _cache: ContentCache[dict[str, Any]] = ContentCache()

    def applies(self, subject: Subject) -> bool:
        """C++ candidates only."""
        return subject.result.proposal.language == "cpp"

    def measure(self, subject: Subject) -> dict[str, Any]:
        """Keys as in `explain`, and `from`: "build" or "recompiled". Raises MissingDependencyError without g++."""
        path = subject.find("kernel.cpp") or subject.find("*.cpp")
        if path is None:
            return missing("no kernel.cpp in the build folder")
        if path.stat().st_size > MAX_TEXT_BYTES:
            return missing(f"kernel.cpp has more than {MAX_TEXT_BYTES} bytes")
        content = path.read_bytes()
        source = content.decode(errors="replace")
        written = path.with_suffix(".opt")
        if written.is_file() and written.stat().st_size:
            with written.open("rb") as file:
                text = file.read(MAX_TEXT_BYTES)
            answer = self._cache.get((content, text), lambda: explain(text.decode(errors="replace"), source))
            return {"from": "build", **answer}
        compiler = str(subject.facts.get("compiler") or "g++")
        chosen = flags(subject.result.proposal.source)
        return self._cache.get((content, " ".join(chosen).encode()), lambda: _recompile(compiler, source, chosen))


def _recompile(compiler: str, source: str, chosen: tuple[str, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kernelevolve-remarks-") as folder:
        Path(folder, "kernel.cpp").write_text(source, encoding="utf-8")
        command = [compiler, *chosen, "-w", "-fopt-info-vec-optimized-missed=kernel.opt"]
        answer = run([*command, "-S", "-o", "/dev/null", "kernel.cpp"], Path(folder), timeout_s=TIMEOUT_S)
        if answer.code is None:
            return missing(f"{compiler} took longer than {TIMEOUT_S:g} s to repeat the build")
        if answer.code != 0:
            return missing(f"{compiler} does not compile kernel.cpp again: {answer.stderr.strip()[:200]}")
        written = Path(folder, "kernel.opt")
        text = written.read_text(errors="replace") if written.is_file() else ""
    return {"from": "recompiled", **explain(text[:MAX_TEXT_BYTES], source)}
