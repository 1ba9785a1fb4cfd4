"""The process that a candidate (or a baseline) lives in: loads it, calls it, times it, on command.

It gives no verdict. It shares its process with code that may be wrong in any way, so whatever it answers is
evidence for the judge to check. Commands and answers are JSON, tensors go through shared memory; see `tensors.py`.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from kernelevolve import languages
from kernelevolve.evaluation.inside import guards, handover, library_log, tensors, timing, watch
from kernelevolve.evaluation.inside.guards import Guards, drifted
from kernelevolve.evaluation.inside.handover import hand_over, ranges
from kernelevolve.evaluation.inside.library_log import LibraryLog
from kernelevolve.evaluation.inside.tensors import flatten, unflatten
from kernelevolve.platforms import PLATFORMS
from kernelevolve.platforms.device import Device
from kernelevolve.workers.channel import Channel

_clock = time.perf_counter_ns  # captured before a candidate is imported, which may replace it
_KEPT = 8
_KEPT_BYTES = 256 * 2**20
"""How many former outputs are held, and of what size all together, the last one in any case."""
_TEXT = 6000
"""Characters of a traceback that are kept: its head and, more of it, its tail."""


def main(channel: Channel) -> None:
    """Serve commands until "exit" or the end of the channel."""
    tempfile.tempdir = None  # the fork server may have cached its own; this process has a private TMPDIR
    runner = Runner()
    while True:
        message, fds = channel.recv()
        op = message.pop("op")
        if op == "exit":
            return
        try:
            answer = getattr(runner, op)(message, fds)
            if op != "load":
                runner.device.synchronize()  # an asynchronous fault belongs to this command
        except BaseException as error:
            answer = {"error": describe(error)}
        channel.send(answer)


def describe(error: BaseException) -> dict[str, Any]:
    """Kind, errno, message and traceback of an exception, each bounded."""
    text = "".join(traceback.format_exception(error))
    if len(text) > _TEXT:
        text = text[: _TEXT // 4] + "\n…\n" + text[-_TEXT * 3 // 4 :]
    return {
        "kind": type(error).__name__,
        "errno": error.errno if isinstance(error, OSError) else None,
        "message": str(error)[:_TEXT],
        "traceback": text,
    }


class Runner:
    """One loaded module, one model built from it, and the inputs it is called with."""

    device: Device
    watch: watch.Watch

    def __init__(self) -> None:
        self.factory: Any = None
        self.compile = False
        self.model: Any = None
        self.slots: dict[int, tuple[Any, ...]] = {}
        self.ranges: dict[int, list[tuple[int, int]]] = {}
        self.kept: list[list[torch.Tensor]] = []
        """Outputs of former calls, held so that a buffer handed out twice shows."""
        self.timer = timing.Timer()

    def load(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Import the file: {"path", "build_dir", "language", "name", "platform", "threads", "reference", "compile",
        "case"}.

        `name` is a class, or with `reference` a key of the file's REFERENCES.
        """
        torch.set_num_threads(message["threads"])
        self.device = PLATFORMS[message["platform"]].device
        language = languages.get(message["language"])
        self.watch = watch.Watch(Runner, Channel, LibraryLog, type(self.device), timing.Timer, guards, handover,
                                 library_log, tensors, timing, watch, sys.modules[__name__])
        module = language.load(Path(message["path"]), Path(message["build_dir"]))
        self.watch.loaded()
        if message.get("case") is not None:
            for key, value in getattr(module, "CASES", {}).get(message["case"], {}).items():
                setattr(module, key, value)
        name = message["name"]
        if message.get("reference"):
            self.factory = module.REFERENCES[name]
        elif not hasattr(module, name):
            raise AttributeError(f"the module has no {name}; expected a class of that name")
        else:
            self.factory = getattr(module, name)
        self.compile = bool(message.get("compile"))
        return {}

    def construct(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Build the model: {"seed", "init", "specs", "state", "state_specs"} and one memory.

        State is loaded as a checkpoint would be: after construction, before the first call.
        """
        memory = self.device.open(message["memory"], fds)
        # A constructor may keep its tensors and the memory is the judge's: give it copies.
        leaves = [t.clone().cpu() for t in memory.tensors(message["specs"])]
        self.model = None
        self.kept = []
        torch.manual_seed(message["seed"])
        args = unflatten(message["init"], leaves)
        model = self.factory(*args)
        if isinstance(model, torch.nn.Module):
            model = model.to(self.device.name)
        given = dict(zip(message["state"], memory.tensors(message["state_specs"]), strict=True))
        fit = _fitting(model, given)
        if fit:
            model.load_state_dict({name: value for name, (_, value) in fit.items()}, strict=False)
        if self.compile:
            model = torch.compile(model)
        self.model = model
        gc.collect()
        gc.freeze()  # a collection that walks all of torch takes 0.1 s: leave it out of later ones
        return {"left_out": [name for name in given if name not in fit]}

    def refresh(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Put other values into the model that is there, in place, as an optimizer does: {"state", "state_specs"}."""
        memory = self.device.open(message["memory"], fds)
        given = dict(zip(message["state"], memory.tensors(message["state_specs"]), strict=True))
        fit = _fitting(self.model, given)
        with torch.no_grad():
            for own, value in fit.values():
                own.copy_(value)
        return {"left_out": [name for name in given if name not in fit]}

    def inputs(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Set the arguments of one slot: {"slot", "args", "specs"} and one memory, kept mapped."""
        memory = self.device.open(message["memory"], fds)
        leaves = memory.tensors(message["specs"])
        self.slots[message["slot"]] = tuple(unflatten(message["args"], leaves))
        self.ranges[message["slot"]] = ranges(leaves)
        return {}

    def call(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Call the model once: {"slot", "seed", "expected": bytes of each leaf} and a memory for the output.

        Answers what `hand_over` does, with {"ns", "guards", "state"}; see `guards.py` and `watch.py`. With "log" also
        the library operators that ran ("library"), with "settle" also what went on after the call ("late").
        """
        memory = self.device.open(message["memory"], fds)
        args = self.slots[message["slot"]]
        log = self._library_log(args) if message.get("log") else None
        bands = Guards(message["expected"], self.device.name)
        torch.manual_seed(message["seed"])
        with torch.no_grad():
            self.device.synchronize()
            start = _clock()
            with log or contextlib.nullcontext():
                output = self.model(*args)
            self.device.synchronize()
            elapsed = _clock() - start
        former = [leaf for kept in self.kept for leaf in kept]
        answer, own = hand_over(output, memory, self.ranges[message["slot"]], ranges(former))
        # Several, because buffers may take turns; few, where they are large.
        size = sum(leaf.numel() * leaf.element_size() for leaf in own)
        self.kept = [*self.kept, own][-max(1, min(_KEPT, _KEPT_BYTES // max(size, 1))) :]
        answer |= {"ns": elapsed, "guards": bands.breach()}
        if log is not None:
            answer["library"] = log.answer(own)
        if message.get("settle"):
            busy = watch.settle()
            answer["late"] = drifted(own, answer, memory) or busy
        left, many = self.watch.company()
        answer["state"] = {"changes": self.watch.changes(), "left": left, "many": many}
        return answer

    def _library_log(self, args: tuple[Any, ...]) -> LibraryLog:
        leaves: list[torch.Tensor] = []
        flatten(list(args), leaves)
        own = list(self.model.parameters()) if isinstance(self.model, torch.nn.Module) else []
        return LibraryLog([t for t in (*leaves, *own) if t.layout == torch.strided])

    def time(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take timing samples; see `timing.Timer.take`."""
        return self.timer.take(self, message, fds)

    def pool(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Set the arguments of timed calls; see `timing.Timer.pool`."""
        return self.timer.pool(self, message, fds)

    def output(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Hand over the output of a timed call; see `timing.Timer.output`."""
        return self.timer.output(self, message, fds)

    def flags(self, _: dict[str, Any], __: list[int]) -> dict[str, Any]:
        """What this process was set to; see `timing.flags`."""
        return timing.flags()


def _fitting(model: Any, given: dict[str, torch.Tensor]) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """By name the model's own tensor and the given one, where it has one of that name and shape."""
    own = model.state_dict() if isinstance(model, torch.nn.Module) else {}
    return {name: (own[name], value) for name, value in given.items()
            if name in own and own[name].shape == value.shape}


if sys.byteorder != "little":  # pragma: no cover - no such platform is supported by torch wheels
    raise ImportError("shared memory between processes assumes a little-endian machine")
