"""The judge's end of a conversation with one runner."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import torch

from kernelevolve.evaluation.inside.tensors import layout
from kernelevolve.evaluation.trials import Trial
from kernelevolve.evaluation.verdict import MALFORMED
from kernelevolve.evaluation.weights import Weights
from kernelevolve.platforms.device import ALIGN, Device, Memory
from kernelevolve.workers import Channel, ChannelClosedError
from kernelevolve.workers.channel import UNTRUSTED_BYTES


class LinkError(Exception):
    """The runner `name` is lost: "closed" or "timeout"."""

    def __init__(self, name: str, reason: str, detail: str) -> None:
        super().__init__(f"{name}: {detail}")
        self.name, self.reason, self.detail = name, reason, detail


class RunnerError(Exception):
    """The code in the runner `name` raised; `error` is `inside.runner.describe`'s answer."""

    def __init__(self, name: str, error: dict[str, Any]) -> None:
        super().__init__(f"{name}: {error.get('kind')}: {error.get('message')}")
        self.name, self.error = name, error


@contextlib.contextmanager
def parsing(name: str) -> Iterator[None]:
    """Around the reading of an answer: one that is not of the form that was asked for is an error of its runner."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError) as error:
        raise RunnerError(name, {"kind": MALFORMED, "message": f"{type(error).__name__}: {error}"}) from error


class Link:
    """One runner: what it was given, and how to ask it."""

    def __init__(self, name: str, fd: int, device: Device) -> None:
        self.name, self.device = name, device
        self.channel = Channel(socket.socket(fileno=fd), limit_bytes=UNTRUSTED_BYTES, descriptors=0)
        self.left_out: list[str] = []
        """Names of state that found no place in its model."""
        self._holds: Weights | None = None
        self._slots: dict[int, tuple[Any, Memory]] = {}

    def ask(self, op: str, message: dict[str, Any], *, timeout_s: float,
            memory: Memory | None = None) -> dict[str, Any]:
        """Send a command and wait for its answer. Raises LinkError or RunnerError."""
        try:
            fds: list[int] = []
            if memory is not None:
                self.device.synchronize()  # what was written here must be there before anyone looks
                message["memory"], fds = memory.ticket()
            self.channel.send({"op": op, **message}, fds, timeout_s)
            answer, _ = self.channel.recv(timeout_s)
        except TimeoutError as error:
            raise LinkError(self.name, "timeout", f"no answer to {op!r} within {timeout_s:.3g} s") from error
        except (ChannelClosedError, RecursionError) as error:
            raise LinkError(self.name, "closed", str(error)) from error
        if not isinstance(answer, dict):
            raise LinkError(self.name, "closed", f"answered {type(answer).__name__}; expected an object")
        if "error" in answer:
            raised = answer["error"]
            raise RunnerError(self.name, raised if isinstance(raised, dict) else {"kind": MALFORMED})
        return answer

    def hold(self, weights: Weights, *, timeout_s: float) -> None:
        """See to it that the model there has these weights: refreshed in place if of the same build, else built."""
        if self._holds is None or self._holds.build != weights.build:
            self.construct(weights, timeout_s=timeout_s)
        elif self._holds.version != weights.version:
            self._refresh(weights, timeout_s)

    def construct(self, weights: Weights, *, timeout_s: float) -> None:
        """Build the model there with the same arguments, seed and state."""
        state = list(weights.state.values())
        specs, size = layout([*weights.init_leaves, *state])
        memory = self.device.lend(size)
        memory.write([*weights.init_leaves, *state], specs)
        k = len(weights.init_leaves)
        try:
            answer = self.ask("construct", {
                "seed": weights.seed, "init": weights.init, "specs": specs[:k], "state": list(weights.state),
                "state_specs": specs[k:],
            }, timeout_s=timeout_s, memory=memory)
        finally:
            memory.close()
        self._hold(weights, answer)

    def _refresh(self, weights: Weights, timeout_s: float) -> None:
        state = list(weights.state.values())
        specs, size = layout(state)
        memory = self.device.lend(size)
        memory.write(state, specs)
        try:
            answer = self.ask("refresh", {"state": list(weights.state), "state_specs": specs}, timeout_s=timeout_s,
                              memory=memory)
        finally:
            memory.close()
        self._hold(weights, answer)

    def _hold(self, weights: Weights, answer: dict[str, Any]) -> None:
        left_out = answer.get("left_out")
        self.left_out = [name for name in weights.state if name in left_out] if isinstance(left_out, list) else []
        self._holds = weights

    def give(self, slot: int, args: Any, leaves: list[torch.Tensor], *, timeout_s: float) -> Memory:
        """Put arguments into a slot. Same layout as before: new values at the same addresses, and nothing is sent."""
        specs, size = layout(leaves)
        shape = [args, specs]
        if slot in self._slots and self._slots[slot][0] == shape:
            memory = self._slots[slot][1]
            memory.write(leaves, specs)
            self.device.synchronize()
            return memory
        memory = self.device.lend(size)
        memory.guard(specs)
        memory.write(leaves, specs)
        if slot in self._slots:
            self._slots.pop(slot)[1].close()
        self._slots[slot] = (shape, memory)
        message = {"slot": slot, "args": args, "specs": specs}
        self.ask("inputs", message, timeout_s=timeout_s, memory=memory)
        return memory

    def call(self, slot: int, trial: Trial, *, timeout_s: float, **extra: bool) -> tuple[dict[str, Any], Memory]:
        """Call the model on a slot; its answer and the memory with its output, poisoned with 0xAB before.

        `extra` are more things to find out: log=True, settle=True; see the runner's `call`.
        """
        sizes = [t.numel() * t.element_size() for t in trial.reference]
        memory = self.device.lend(sum(-(-size // ALIGN) * ALIGN for size in sizes) + ALIGN)
        memory.bytes.fill_(0xAB)
        try:
            answer = self.ask("call", {"slot": slot, "seed": trial.seed, "expected": sizes, **extra},
                              timeout_s=timeout_s, memory=memory)
        finally:
            memory.close()
        return answer, memory

    def close(self) -> None:
        """Drop the channel and every slot."""
        self.channel.close()
        for _, memory in self._slots.values():
            memory.close()
        self._slots.clear()
