"""The engineer's own kernels: `Study.submit` hands them over, and they are candidates like any other."""

from __future__ import annotations

import re

from kernelevolve import errors
from kernelevolve.operators.base import Operator
from kernelevolve.records import Context, Proposal


class Hand(Operator):
    """Turns a source into a proposal. It cannot write by itself."""

    name = "hand"

    def write(self, context: Context) -> Proposal:
        """Raises StudyError: a hand needs somebody who moves it."""
        raise errors.StudyError(
            "operator 'hand' writes nothing by itself: give it a source with study.submit(source, parent=…), "
            "or choose another operator with study.use(operator=…)"
        )

    def propose(self, source: str, parents: tuple[int, ...] = (), *, language: str = "") -> Proposal:
        """The source as a proposal; the language is told from the text when it is not named."""
        origin = f"from node {parents[0]}" if parents else "from nothing"
        return Proposal(
            source=source,
            language=language or tell_language(source),
            operator=self.name,
            rationale=f"written by hand, {origin}",
            move="hand",
            parents=parents,
        )


def tell_language(source: str) -> str:
    """Name of the language plug-in that the source is for, from its imports and markers."""
    if re.search(r"^\s*(import|from)\s+triton\b", source, re.MULTILINE):
        return "triton"
    if re.search(r"\bctypes\b|\bload_inline\b|extern\s+\"C\"|#include\b", source):
        return "cpp"
    return "pytorch"
