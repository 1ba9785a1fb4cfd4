"""Reductions inside a loop nest: accumulators that vectorise, several of them to hide latency, sums in blocks.

Largest and smallest are plain comparisons, which become one vector instruction; a flag beside it remembers NaN.
Long sums are cut into blocks whose sums are added up, so that the error grows with the block and not with the row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from kernelevolve.operators.template.cpp.dialect import identifier
from kernelevolve.operators.template.cpp.loops import CPP, indented, simd
from kernelevolve.operators.template.expr import FLOATS, Expr
from kernelevolve.operators.template.scalar import Scope
from kernelevolve.operators.template.space import Reduction

BLOCK = 256
"""Additions to one lane before its sum is put aside."""


@dataclasses.dataclass(frozen=True)
class Accumulator:
    """The variables of one reduction."""

    reduction: Reduction
    name: str

    @property
    def kind(self) -> str:
        """C++ type of the value."""
        return CPP.types[self.reduction.dtype]

    @property
    def watches_nan(self) -> bool:
        """Whether NaN needs a flag of its own."""
        return self.reduction.op in ("max", "min") and self.reduction.dtype in FLOATS

    def start(self) -> list[str]:
        """Declarations with the neutral element."""
        op, kind = self.reduction.op, self.kind
        neutral = {
            "sum": "0",
            "prod": "1",
            "max": f"k_lowest<{kind}>",
            "min": f"k_highest<{kind}>",
            "any": "false",
            "all": "true",
        }[op]
        flag = [f"int {self.name}_nan = 0;"] if self.watches_nan else []
        return [f"{kind if op not in ('any', 'all') else 'int'} {self.name} = {neutral};", *flag]

    def clauses(self) -> list[str]:
        """OpenMP's reduction clauses."""
        op = {"sum": "+", "prod": "*", "max": "max", "min": "min", "any": "|", "all": "&"}[self.reduction.op]
        return [f"reduction({op}:{self.name})", *([f"reduction(|:{self.name}_nan)"] if self.watches_nan else [])]

    def take(self, text: str) -> list[str]:
        """Statements that take one value in."""
        op, name = self.reduction.op, self.name
        if op in ("sum", "prod"):
            return [f"{name} {'+' if op == 'sum' else '*'}= {text};"]
        if op in ("any", "all"):
            return [f"{name} {'|' if op == 'any' else '&'}= int({text});"]
        lines = [f"{name} = {text} {'>' if op == 'max' else '<'} {name} ? {text} : {name};"]
        return [*lines, f"{name}_nan |= {text} != {text};"] if self.watches_nan else lines

    def join(self, other: str) -> list[str]:
        """Statements that take another accumulator in."""
        lines = self.take(other)[:1]
        return [*lines, f"{self.name}_nan |= {other}_nan;"] if self.watches_nan else lines

    def result(self) -> str:
        """The final value."""
        if self.watches_nan:
            return f"({self.name}_nan ? k_nan<{self.kind}> : {self.name})"
        return f"({self.name} != 0)" if self.reduction.op in ("any", "all") else self.name


Body = Callable[[Scope, Sequence[Expr]], list[str]]
"""Texts of expressions in a scope, keeping values on the way."""


def accumulate(
    parent: Scope,
    reductions: Sequence[Reduction],
    dim: int,
    name: str,
    span: tuple[str, str, int],
    *,
    width: int,
    streams: int,
    body: Body,
    suffix: str = "",
) -> list[Accumulator]:
    """One vectorised loop over `dim` from span[0] to span[1] (span[2] points, or 0): the filled accumulators."""
    start, stop, points = span
    groups = [[Accumulator(r, f"{identifier(r.name)}{suffix}{s or ''}") for r in reductions] for s in range(streams)]
    parent.lines += [line for group in groups for a in group for line in a.start()]
    if streams > 1:
        each = points // (streams * width) * width
        places = [f"({name} + {s * each})" if s else name for s in range(streams)]
        _loop(
            parent, groups, dim, name, (start, f"{start} + {each}" if start != "0" else str(each)), places, width, body
        )
        if each * streams < points:
            first = str(each * streams) if start == "0" else f"{start} + {each * streams}"
            _loop(parent, groups[:1], dim, name, (first, stop), [name], width, body)
        for group in groups[1:]:
            for own, other in zip(groups[0], group, strict=True):
                parent.lines += own.join(other.name)
    else:
        _loop(parent, groups, dim, name, (start, stop), [name], width, body)
    return groups[0]


def _loop(
    parent: Scope,
    groups: Sequence[Sequence[Accumulator]],
    dim: int,
    name: str,
    span: tuple[str, str],
    places: Sequence[str],
    width: int,
    body: Body,
) -> None:
    lines: list[str] = []
    for group, place in zip(groups, places, strict=True):
        scope = Scope(CPP, parent, {dim: place})
        texts = body(scope, [a.reduction.body for a in group])
        taken = []
        for a, text in zip(group, texts, strict=True):
            if a.watches_nan and not text.isidentifier():
                text = scope.name(a.reduction.body, text)
            taken += a.take(text)
        lines += [*scope.lines, *taken]
    clauses = [c for group in groups for a in group for c in a.clauses()]
    head = f"for (int64_t {name} = {span[0]}; {name} < {span[1]}; {name}++) {{"
    parent.lines += [simd(width, clauses), head, *indented(lines), "}"]
