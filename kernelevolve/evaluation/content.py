"""What timed calls are given: content that no call has seen before, and that the judge can make again.

A few draws from the problem's `get_inputs` are mixed: every changeable storage becomes (1 - w) a + w b, of two draws
and with a weight w that are chosen afresh for every call. Such a mix keeps what honest kernels may rely on
(symmetric, triangular, positive, zero in the same places, rows that add to one, within bounds), costs one pass over
the inputs, and is new to a cache even if that is keyed on every bit.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import torch

from kernelevolve.evaluation.inside.tensors import layout
from kernelevolve.evaluation.link import Link
from kernelevolve.evaluation.trials import Factory, by_storage
from kernelevolve.evaluation.weights import changeable as may_change
from kernelevolve.platforms.device import Device, Memory, raw

POOL_BYTES = 64 * 2**20
"""Slots beyond the settings' `input_sets` are made up to this."""
MAX_SLOTS = 128
"""More than a span has calls: an operator of PyTorch takes a microsecond at least."""
_UNCHANGED_DRAWS = 32
"""Draws where nothing can be changed, so that content repeats late."""


@dataclasses.dataclass(frozen=True)
class Mix:
    """One content: draws by number, and the weight of the second."""

    draw: int
    partner: int
    """-1 where no other draw has the same shapes: it is scaled down instead."""
    weight: float


@dataclasses.dataclass
class _Draw:
    args: Any
    leaves: list[torch.Tensor]
    specs: list[dict[str, Any]]
    size: int
    changeable: dict[int, torch.Tensor]
    """Storages that may be changed, flat, by where they start."""
    partners: list[int] = dataclasses.field(default_factory=list)


class Content:
    """Draws of one problem, made by its judge under secret seeds."""

    def __init__(self, factory: Factory, args: Any, leaves: list[torch.Tensor], *, sets: int, seeds: list[int],
                 input_bytes: int) -> None:
        """`args` and `leaves` are the first draw; each seed gives another, up to `sets` while they fit `input_bytes`.

        Where nothing can be changed there are more of them.
        """
        self.device: Device = factory.device
        self.rng = random.Random(seeds[0])  # noqa: S311 - a guess at it gains nothing: audits use fresh draws
        self.draws = [_draw(args, leaves)]
        most = min(sets if self.changes else _UNCHANGED_DRAWS, input_bytes // max(self.draws[0].size, 1), len(seeds))
        for seed in seeds[: max(most, 1) - 1]:
            self.draws.append(_draw(*factory.arguments(seed)))
        for i, one in enumerate(self.draws):
            one.partners = [j for j, other in enumerate(self.draws)
                            if j != i and (other.args, other.specs) == (one.args, one.specs)
                            and other.changeable.keys() == one.changeable.keys()]

    @property
    def changes(self) -> bool:
        """Whether there is anything that can be changed."""
        return any(draw.changeable for draw in self.draws)

    def slots(self, input_sets: int, input_bytes: int) -> int:
        """How many slots a pool should have."""
        size = max(max(draw.size for draw in self.draws), 1)
        return max(1, min(MAX_SLOTS, input_bytes // size, max(POOL_BYTES // size, input_sets)))

    def fresh(self, slot: int) -> Mix:
        """Content for a slot that no slot has had. A slot keeps the shapes of its draw."""
        one = slot % len(self.draws)
        same = self.draws[one].partners
        if not same:
            return Mix(one, -1, self.rng.uniform(0.05, 0.5))
        draw, partner = self.rng.sample([one, *same], 2)
        return Mix(draw, partner, self.rng.uniform(0.05, 0.95))

    def args(self, slot: int) -> tuple[Any, list[dict[str, Any]], int]:
        """Skeleton of a slot's arguments, their specs and size."""
        draw = self.draws[slot % len(self.draws)]
        return draw.args, draw.specs, draw.size

    def write(self, mix: Mix, memory: Memory, base: int) -> None:
        """Put content into lent memory, its specs starting at byte `base`."""
        draw = self.draws[mix.draw]
        done = set()
        for leaf, spec in zip(draw.leaves, draw.specs, strict=True):
            start, size = spec["start"], spec["bytes"]
            if not size or start in done:
                continue
            done.add(start)
            place = memory.bytes[base + start : base + start + size]
            flat = draw.changeable.get(start)
            if flat is None:
                place.copy_(raw(leaf))
            else:
                self._mix(mix, start, flat, place[: flat.numel() * flat.element_size()].view(flat.dtype))

    def leaves(self, mix: Mix) -> tuple[Any, list[torch.Tensor]]:
        """The same content as tensors of the judge's own."""
        draw = self.draws[mix.draw]
        made: dict[int, torch.Tensor] = {}
        found = []
        for leaf, spec in zip(draw.leaves, draw.specs, strict=True):
            start = spec["start"]
            flat = draw.changeable.get(start)
            if flat is None or not leaf.numel():
                found.append(leaf)
                continue
            if start not in made:
                made[start] = torch.empty_like(flat)
                self._mix(mix, start, flat, made[start])
            found.append(made[start].as_strided(leaf.shape, leaf.stride(), leaf.storage_offset()))
        return draw.args, found

    def _mix(self, mix: Mix, start: int, flat: torch.Tensor, out: torch.Tensor) -> None:
        if mix.partner < 0:
            torch.mul(flat, 1 - mix.weight, out=out)
        else:
            torch.lerp(flat, self.draws[mix.partner].changeable[start], mix.weight, out=out)


class Pool:
    """Slots of timed calls in one lent memory: fresh content before every use."""

    def __init__(self, content: Content, count: int) -> None:
        self.content = content
        self.bases: list[int] = []
        self.described: list[dict[str, Any]] = []
        total = 0
        for slot in range(count):
            args, specs, size = content.args(slot)
            self.bases.append(total)
            self.described.append({"args": args, "specs": [{**s, "start": s["start"] + total} for s in specs]})
            total += size
        self.memory = content.device.lend(total)
        self.specs = [spec for slot in self.described for spec in slot["specs"]]
        self.memory.guard(self.specs)
        self.mixes = [content.fresh(slot) for slot in range(count)]
        self.refresh(list(range(count)))

    def __len__(self) -> int:
        return len(self.bases)

    def give(self, link: Link, timeout_s: float) -> None:
        """Let a runner have these slots."""
        link.ask("pool", {"slots": self.described}, timeout_s=timeout_s, memory=self.memory)

    def refresh(self, slots: list[int]) -> None:
        """New content for these slots."""
        for slot in dict.fromkeys(slots):
            self.mixes[slot] = self.content.fresh(slot)
            self.content.write(self.mixes[slot], self.memory, self.bases[slot])
        self.content.device.synchronize()

    def put(self, slot: int, leaves: list[torch.Tensor]) -> None:
        """Other content for a slot, of the same shapes."""
        self.memory.write(leaves, self.described[slot]["specs"])
        self.content.device.synchronize()

    def close(self) -> None:
        """Give the memory up."""
        self.memory.close()


def _draw(args: Any, leaves: list[torch.Tensor]) -> _Draw:
    specs, size = layout(leaves)
    starts = {id(leaf): spec["start"] for leaf, spec in zip(leaves, specs, strict=True)}
    found = {}
    for storage in by_storage(leaves):
        if all(map(may_change, storage)) and len({leaf.dtype for leaf in storage}) == 1 and _mixes(storage[0]):
            flat = torch.empty(0, dtype=storage[0].dtype, device=storage[0].device)
            found[starts[id(storage[0])]] = flat.set_(  # type: ignore[call-overload]
                storage[0].untyped_storage())
    return _Draw(args, leaves, specs, size, found)


def _mixes(leaf: torch.Tensor) -> bool:
    """Whether torch can mix this dtype here (not every device can mix 8-bit floats)."""
    one = torch.ones(2, dtype=torch.float32, device=leaf.device).to(leaf.dtype)
    try:
        torch.lerp(one, one, 0.5, out=torch.empty_like(one))
        torch.mul(one, 0.5, out=torch.empty_like(one))
    except (RuntimeError, NotImplementedError):
        return False
    return True
