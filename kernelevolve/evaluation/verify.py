"""Outputs of timed calls, compared with what the reference makes of the same content."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import torch

from kernelevolve.evaluation.compare import examine
from kernelevolve.evaluation.content import Content
from kernelevolve.evaluation.inside.tensors import flatten, layout, unflatten
from kernelevolve.evaluation.session import Block, Side
from kernelevolve.evaluation.trials import Trial, _clone, _useless, same_bits
from kernelevolve.evaluation.verdict import Verdict
from kernelevolve.platforms.device import ALIGN, Memory
from kernelevolve.records import LeafError, Status

if TYPE_CHECKING:
    from kernelevolve.evaluation.judge import Judge

UNSEEN = "audit, unseen inputs"
OTHERS = 3
"""How many outputs of an audit's span are verified besides the last, where a span has several calls."""
_RNG = secrets.SystemRandom()
Found = tuple[Verdict | None, list[LeafError]]


class Verifier:
    """Asks for outputs of timed calls and judges them."""

    def __init__(self, judge: Judge, content: Content) -> None:
        self.judge, self.content = judge, content
        self.output_bytes = sum(t.numel() * t.element_size() for t in judge.first.reference)
        self.cost_s = 4 * judge.first.reference_s
        """About what one verification takes: the reference, and the same in float64."""
        self.random = self._draws_numbers()
        """Whether the reference's output depends on the state of the random number generator."""
        self.done = 0

    def check(self, side: Side, repeats: int) -> Found:
        """The last output of the block that was just timed. It was not said beforehand that it would be asked for."""
        slot, mix, seed = side.last
        span = side.spans(1, repeats)[0]
        if repeats > 1 and (self.random or (self.judge.first.mutates and len(set(span)) < repeats)):
            return None, []
        trial = self._trial(seed, *self.content.leaves(mix), "in the session")
        if _useless(trial):
            return None, []
        return self._fetch(side, trial, -1, slot)

    def audit(self, side: Side, repeats: int, *, verify: bool, wake: int) -> tuple[Block, Found]:
        """One span on inputs that did not exist a moment ago, every output kept, the last copied out at once.

        The inputs are written after everything else is done, so that nobody can have computed ahead. Which further
        outputs are verified is chosen when all of them lie there. The caller has warmed up; so many calls before it, on
        other content, `wake` its threads, which have gone to sleep meanwhile.
        """
        span = side.spans(1, repeats)[0]
        wake = wake if side.met > 1 else 0
        seed = secrets.randbelow(2**30)
        given = {slot: self._unseen(slot) for slot in dict.fromkeys(span)}
        verify = verify and (len(given) == repeats or not self.judge.first.mutates)
        # Random numbers are seeded before the span, so that only its first call can be made again.
        last = 0 if self.random else repeats - 1
        trials = {last: self._trial(seed + bool(wake), *given[span[last]], UNSEEN)} if verify else {}
        memory = self._lend(trials.get(last, self.judge.first))
        for slot, (_, leaves) in given.items():
            side.pool.put(slot, leaves)
        try:
            block = side.ask([[0] * wake, span] if wake else [span], keep=True, memory=memory, seed=seed)
        finally:
            memory.close()
        if not verify:
            return block, (None, [])
        if not self.random:
            for other in _RNG.sample(range(repeats), min(repeats, OTHERS)):
                trials.setdefault(other, self._trial(seed + bool(wake), *given[span[other]], UNSEEN))
        errors: list[LeafError] = []
        for index, trial in trials.items():
            if index == repeats - 1:
                verdict, found = self._examine(block.last or {}, memory, trial)
            else:
                verdict, found = self._fetch(side, trial, index - repeats, span[index])
            errors += found
            if verdict is not None:
                return block, (verdict, errors)
        for slot, (_, leaves) in given.items():
            changed = self._changed(side, slot, leaves)
            if changed:
                return block, (Verdict(Status.MUTATED_INPUT, f"in a timed call: {changed}"), errors)
        return block, (None, errors)

    def _unseen(self, slot: int) -> tuple[Any, list[torch.Tensor]]:
        """A new draw that fits the slot; new content of the slot's own where draws differ in their shapes."""
        args, specs, _ = self.content.args(slot)
        drawn = self.judge.factory.arguments(secrets.randbelow(2**31))
        if drawn[0] == args and layout(drawn[1])[0] == specs:
            return drawn
        return self.content.leaves(self.content.fresh(slot))

    def _trial(self, seed: int, args: Any, leaves: list[torch.Tensor], name: str) -> Trial:
        return self.judge.factory._run(self.judge.timed, seed, args, leaves, name)

    def _fetch(self, side: Side, trial: Trial, index: int, slot: int) -> Found:
        memory = self._lend(trial)
        try:
            answer = side.link.ask("output", {"index": index}, timeout_s=side.timeout_s, memory=memory)
        finally:
            memory.close()
        return self._examine(answer, memory, trial)

    def _lend(self, trial: Trial) -> Memory:
        size = sum(-(-t.numel() * t.element_size() // ALIGN) * ALIGN for t in trial.reference) + ALIGN
        memory = self.judge.device.lend(size)
        memory.bytes.fill_(0xAB)
        return memory

    def _examine(self, answer: dict[str, Any], memory: Memory, trial: Trial) -> Found:
        self.judge.device.synchronize()
        self.done += 1
        return examine(answer, memory, trial, self.judge.rules, self.judge.scale)

    def _changed(self, side: Side, slot: int, leaves: list[torch.Tensor]) -> str:
        if self.judge.first.mutates:
            return ""
        specs = side.pool.described[slot]["specs"]
        for i, (now, then) in enumerate(zip(side.pool.memory.tensors(specs), leaves, strict=True)):
            if not same_bits(now, then):
                return f"input {i} was changed; expected inputs to be left alone"
        place = side.pool.memory.breached(side.pool.specs)
        return "" if place is None else f"byte {place} of the memory around the inputs was written"

    def _draws_numbers(self) -> bool:
        """Run the reference again under another seed."""
        first = self.judge.first
        model: Any = first.weights.model
        with torch.no_grad():
            torch.manual_seed(first.seed + 1)
            leaves: list[Any] = []
            flatten(model(*unflatten(first.args, _clone(first.leaves))), leaves)
        return not all(a.shape == b.shape and same_bits(a.detach(), b)
                       for a, b in zip(leaves, first.reference, strict=True))
