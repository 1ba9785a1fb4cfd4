"""Loops of a C++ source, by brackets: where each starts and ends, what stands inside. Not a parser: bounded and total.

A compiler's remark names a position; the innermost loop around that position is the one that it speaks of, whichever
part of the loop (header, body, pragma) it points at.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re

_BLANK = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_LOOP = re.compile(r"\b(?:for|while)\s*(?=\()|\bdo\s*(?=\{)")
_NAME = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_VECTOR = re.compile(r"\b_mm\w*\b|\b__m(?:128|256|512)\w*\b|\b__builtin_ia32\w*\b|\bvector_size\b|\bsimd<")
_VECTOR_ALIAS = re.compile(
    r"\busing\s+(\w+)[^;]{0,200}?(?:vector_size|__m(?:128|256|512))|\btypedef[^;]{0,200}?\b(\w+)\s*__attribute__[^;]{0,100}vector_size"
)
MAX_LOOPS = 500
"""Loops looked at; generated sources have tens."""
_KEYWORDS = {"for", "while", "if", "switch", "return", "sizeof", "catch"}


@dataclasses.dataclass(frozen=True)
class SourceLoop:
    """One loop statement, from its keyword to the end of its body, in characters of the source."""

    line: int
    """Line of the keyword, counted from 1."""
    text: str
    """The header on one line, bounded."""
    function: str
    start: int
    end: int
    innermost: bool
    explicit: bool
    """Written in vectors already (intrinsics, vector types, or functions that use them)."""


class Source:
    """A C++ source with its loops."""

    def __init__(self, text: str) -> None:
        # Comments and strings become blanks of the same length: positions stay, brackets in them do not count.
        self._code = _BLANK.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
        self._lines = [0, *(match.end() for match in re.finditer("\n", self._code))]
        self._pairs = _match_brackets(self._code)
        functions = self._functions()
        vectors = self._vector_names(functions)
        spans = [
            (match.start(), self._statement_end(match.start()))
            for match in itertools.islice(_LOOP.finditer(self._code), MAX_LOOPS)
        ]
        self.loops = tuple(self._loop(start, end, spans, functions, vectors) for start, end in spans if end > start)

    def at(self, line: int, column: int) -> SourceLoop | None:
        """The innermost loop around a position (both from 1); a pragma's own line belongs to the loop after it."""
        if not 1 <= line <= len(self._lines):
            return None
        position = self._lines[line - 1] + column - 1
        if re.compile(r"[ \t]*#pragma").match(self._code, self._lines[line - 1]):
            return min((c for c in self.loops if c.start > position), key=lambda c: c.start, default=None)
        around = [candidate for candidate in self.loops if candidate.start <= position < candidate.end]
        return min(around, key=lambda candidate: candidate.end - candidate.start, default=None)

    def _loop(
        self,
        start: int,
        end: int,
        spans: list[tuple[int, int]],
        functions: list[tuple[str, int, int]],
        vectors: re.Pattern[str],
    ) -> SourceLoop:
        body = self._code[start:end]
        header = self._code[start : self._closing(self._code.find("(", start)) + 1]
        owner = [(stop - first, name) for name, first, stop in functions[:MAX_LOOPS] if first <= start < stop]
        return SourceLoop(
            line=bisect.bisect_right(self._lines, start),
            text=" ".join(header.split())[:120],
            function=max(owner)[1] if owner else "",
            start=start,
            end=end,
            innermost=not any(start < other < end for other, _ in spans),
            explicit=bool(vectors.search(body)),
        )

    def _functions(self) -> list[tuple[str, int, int]]:
        """Name, start and end of every function body."""
        found = []
        for match in _NAME.finditer(self._code):
            closing = self._closing(match.end() - 1)
            opening = re.compile(r"[\s\w]*\{").match(self._code, closing + 1)
            if match.group(1) not in _KEYWORDS and closing > 0 and opening:
                line = self._lines[bisect.bisect_right(self._lines, match.start()) - 1]
                found.append((match.group(1), line, self._closing(opening.end() - 1) + 1))
        return found

    def _vector_names(self, functions: list[tuple[str, int, int]]) -> re.Pattern[str]:
        """What marks explicit vector code: intrinsics, aliases of vector types, and functions that use either."""
        aliases = {name for pair in _VECTOR_ALIAS.findall(self._code) for name in pair if name}
        marks = re.compile("|".join([_VECTOR.pattern, *(rf"\b{name}\b" for name in sorted(aliases))]))
        users = {name for name, start, end in functions[:MAX_LOOPS] if marks.search(self._code, start, max(start, end))}
        return re.compile("|".join([marks.pattern, *(rf"\b{name}\s*\(" for name in sorted(users))]))

    def _statement_end(self, start: int) -> int:
        """Position after the loop statement that starts here; `start` itself when brackets do not match."""
        at = start
        while True:
            keyword = re.compile(r"\s*(?:do\b|(?:for|while|if)\s*\(|else\b|#pragma[^\n]*\n)").match(self._code, at)
            if keyword is None:
                break
            at = keyword.end()
            if keyword.group().endswith("("):
                at = self._closing(at - 1) + 1
                if at == 0:
                    return start
        opening = re.compile(r"\s*\{").match(self._code, at)
        end = self._closing(opening.end() - 1) if opening else self._code.find(";", at)
        return end + 1 if end >= 0 else start

    def _closing(self, opening: int) -> int:
        """Position of the bracket that closes the one at `opening`; -1 when there is none."""
        return self._pairs.get(opening, -1)


def _match_brackets(code: str) -> dict[int, int]:
    """Position of each opening bracket to that of its closing one, in one pass."""
    pairs, waiting = {}, list[int]()
    for match in re.finditer(r"[(\[{}\])]", code):
        if match.group() in "([{":
            waiting.append(match.start())
        elif waiting:
            pairs[waiting.pop()] = match.start()
    return pairs
