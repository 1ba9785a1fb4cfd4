"""Disassembly as data: functions, their instructions and their loops, from objdump's text (Intel syntax).

Only the shape of the text is read here; what an instruction is good for is `static`'s business.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator

_HEADER = re.compile(r"^[0-9a-f]+ <(.+)>:$")
_LINE = re.compile(r"^\s+([0-9a-f]+):\t((?:[0-9a-f]{2} )+)\s*\t(\S.*)$")
_PREFIX = re.compile(r"^(?:(?:lock|rep[nze]*|notrack|bnd|[c-gs]s|data16|addr32|rex\S*|\{v?e?vex3?\})\s+)+(?=\S)")
_SYMBOL = re.compile(r"<([^>+@]+)")
_MEMORY = re.compile(r"\[([^\]]*)\]")
_WIDTH = re.compile(r"\b([xyz])mm\d")
_CLONE = re.compile(r"\.(?:_omp_fn|part|constprop|isra|cold|lto_priv|localalias)(?:\.\d+)?")
_RUNTIME = re.compile(
    r"^(?:_init|_fini|_start|(?:de)?register_tm_clones|__do_global_dtors_aux|frame_dummy|set_fast_math|\.plt.*|.*@plt.*)$"
)
MAX_LOOPS = 200
"""Loops looked at per function, for code that is nothing but jumps."""
BITS = {"x": 128, "y": 256, "z": 512}


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One instruction. `operands` are in Intel order: destination first."""

    address: int
    size: int
    """Bytes of code."""
    opcode: str
    operands: tuple[str, ...]
    symbol: str = ""
    """Name in angle brackets: what a call calls, where a jump lands."""

    @functools.cached_property
    def memory(self) -> str:
        """The address expression between brackets; empty without a memory operand."""
        match = _MEMORY.search(",".join(self.operands))
        return match.group(1) if match else ""

    @property
    def writes_memory(self) -> bool:
        """Whether the destination is in memory."""
        return bool(self.operands) and "[" in self.operands[0]

    @property
    def reads_memory(self) -> bool:
        """Whether a source is in memory."""
        return any("[" in operand for operand in self.operands[1:])

    @functools.cached_property
    def width(self) -> int:
        """Bits of the widest vector register named; 0 without one."""
        return max((BITS[letter] for letter in _WIDTH.findall(",".join(self.operands))), default=0)

    @property
    def target(self) -> int | None:
        """Address that a jump goes to; None for a computed one."""
        match = re.match(r"[0-9a-f]+", self.operands[0]) if self.operands else None
        return int(match.group(), 16) if match and self.opcode.startswith("j") else None


@dataclasses.dataclass(frozen=True)
class Loop:
    """Instructions between the target of a backward jump and the jump."""

    first: int
    last: int
    """Positions of head and jump among the function's instructions."""
    body: tuple[Instruction, ...]

    def inside(self, other: Loop) -> bool:
        """Whether this loop is a proper part of the other."""
        return self is not other and other.first <= self.first and self.last <= other.last


@dataclasses.dataclass(frozen=True)
class Function:
    """One symbol's code, padding included."""

    name: str
    instructions: tuple[Instruction, ...]

    @property
    def code_bytes(self) -> int:
        """Size of the code."""
        return sum(instruction.size for instruction in self.instructions)

    @property
    def parent(self) -> str:
        """The source function it was cut out of: `f._omp_fn.0` (an OpenMP region) and `f.part.0` belong to `f`."""
        return _CLONE.sub("", self.name)

    @functools.cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Every loop, one per backward jump. Of a block laid out behind its successor only the jump is backward: a
        loop's head must lead to the jump as well.
        """
        index = {instruction.address: at for at, instruction in enumerate(self.instructions)}
        jumps = [
            (first, last)
            for last, instruction in enumerate(self.instructions)
            if instruction.target is not None and (first := index.get(instruction.target, last + 1)) <= last
        ]
        found = []
        for first, last in jumps[:MAX_LOOPS]:
            body = self._reached(first, last, index) & self._reaching(first, last, index)
            if last in body:
                found.append(Loop(first, last, tuple(self.instructions[at] for at in sorted(body))))
        return tuple(found)

    @property
    def innermost(self) -> tuple[Loop, ...]:
        """Loops with no other loop inside. Of two jumps to one head the nearer counts: the other closes a rare path."""
        return tuple(outer for outer in self.loops if not any(inner.inside(outer) for inner in self.loops))

    def _reached(self, first: int, last: int, index: dict[int, int]) -> set[int]:
        seen, todo = set[int](), [first]
        while todo:
            at = todo.pop()
            if first <= at <= last and at not in seen:
                seen.add(at)
                todo += self._successors(at, index)
        return seen

    def _reaching(self, first: int, last: int, index: dict[int, int]) -> set[int]:
        predecessors: dict[int, list[int]] = {}
        for at in range(first, last + 1):
            for successor in self._successors(at, index):
                predecessors.setdefault(successor, []).append(at)
        seen, todo = set[int](), [last]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += predecessors.get(at, []) if at != first else []
        return seen

    def _successors(self, at: int, index: dict[int, int]) -> list[int]:
        instruction = self.instructions[at]
        jump = index.get(instruction.target) if instruction.target is not None else None
        following = [] if instruction.opcode in ("jmp", "ret", "ud2", "hlt") else [at + 1]
        return following if jump is None else [jump, *following]


def parse(text: str) -> list[Function]:
    """Functions in the text of `objdump -d -M intel --insn-width=15`, without the C runtime's own and the call stubs.

    Text of any other kind gives an empty list.
    """
    bodies: dict[str, list[Instruction]] = {}
    name = ""
    for line in text.splitlines():
        if header := _HEADER.match(line):
            name = "" if _RUNTIME.match(header.group(1)) else header.group(1)
        elif name and (match := _LINE.match(line)):
            address, code, words = match.groups()
            bodies.setdefault(name, []).append(_instruction(int(address, 16), len(code.split()), words))
    return [Function(name, tuple(body)) for name, body in bodies.items()]


def _instruction(address: int, size: int, words: str) -> Instruction:
    symbol = _SYMBOL.search(words)
    words = re.sub(r"<[^>]*>", "", words.partition("#")[0]).strip()
    opcode, _, operands = _PREFIX.sub("", words).partition(" ")
    return Instruction(address, size, opcode, tuple(_split(operands.strip())), symbol.group(1) if symbol else "")


def _split(operands: str) -> Iterator[str]:
    depth, start = 0, 0
    for at, letter in enumerate(operands):
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            yield operands[start:at].strip()
            start = at + 1
    if operands[start:].strip():
        yield operands[start:].strip()
