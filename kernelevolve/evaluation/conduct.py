"""What a candidate's process says about its own conduct during a call, turned into a verdict.

An admission counts against it; silence does not count for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelevolve.evaluation.verdict import Verdict, clean
from kernelevolve.records import Status

_TEXT = 600


def conduct(answer: Any, where: str) -> Verdict | None:
    """Verdict on the parts "guards", "late" and "state" of an answer to `call`; None when they admit nothing."""
    if not isinstance(answer, Mapping):
        return None
    guards = answer.get("guards")
    if guards:
        return Verdict(Status.WRONG_VALUE, f"{where}: wrote outside its output: {_words(guards)}; expected writes to "
                                           "the output's own elements alone")
    state = answer.get("state")
    state = state if isinstance(state, Mapping) else {}
    if state.get("many"):
        return Verdict(Status.RESOURCE_LIMIT, f"{where}: {_words(state['many'])}")
    if state.get("left"):
        return Verdict(Status.DISHONEST, f"{where}: {_words(state['left'])} after the call; expected all its work to "
                                         "be done, and nothing left running")
    if answer.get("late"):
        return Verdict(Status.DISHONEST, f"{where}: {_words(answer['late'])}")
    if state.get("changes"):
        return Verdict(Status.DISHONEST, f"{where}: global state was changed: {_words(state['changes'])}; expected "
                                         "the process to be left as it was")
    return None


def _words(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return clean("; ".join(str(v)[:_TEXT] for v in value[:20]), _TEXT)
    return clean(str(value)[:_TEXT], _TEXT)
