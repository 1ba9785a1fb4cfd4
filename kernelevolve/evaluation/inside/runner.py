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
from kernelevolve.evaluation.inside.tensors import dtype_name, flatten, unflatten
from kernelevolve.platforms import PLATFORMS
from kernelevolve.platforms.device import ALIGN, Device
from kernelevolve.workers.channel import Channel

_clock = time.perf_counter_ns  # captured before a candidate is imported, which may replace it
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

    def __init__(self) -> None:
        self.factory: Any = None
        self.compile = False
        self.model: Any = None
        self.slots: dict[int, tuple[Any, ...]] = {}
        self.ranges: dict[int, list[tuple[int, int]]] = {}
        self.kept: list[torch.Tensor] = []
        """Output of the former call, held so that a buffer handed out twice shows."""
        self.flush: torch.Tensor | None = None

    def load(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Import the file: {"path", "build_dir", "language", "name", "platform", "threads", "reference", "compile",
        "case"}.

        `name` is a class, or with `reference` a key of the file's REFERENCES.
        """
        torch.set_num_threads(message["threads"])
        self.device = PLATFORMS[message["platform"]].device
        language = languages.get(message["language"])
        module = language.load(Path(message["path"]), Path(message["build_dir"]))
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
        left_out = []
        if isinstance(model, torch.nn.Module):
            own = model.state_dict()
            given = dict(zip(message["state"], memory.tensors(message["state_specs"]), strict=True))
            fit = {k: v for k, v in given.items() if k in own and own[k].shape == v.shape}
            left_out = [k for k in given if k not in fit]
            if fit:
                model.load_state_dict(fit, strict=False)
        if self.compile:
            model = torch.compile(model)
        self.model = model
        gc.collect()
        gc.freeze()  # a collection that walks all of torch takes 0.1 s: leave it out of later ones
        return {"left_out": left_out}

    def inputs(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Set the arguments of one slot: {"slot", "args", "specs"} and one memory, kept mapped."""
        memory = self.device.open(message["memory"], fds)
        leaves = memory.tensors(message["specs"])
        self.slots[message["slot"]] = tuple(unflatten(message["args"], leaves))
        self.ranges[message["slot"]] = [_span(t) for t in leaves if t.numel()]
        return {}

    def call(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Call the model once: {"slot", "seed", "expected": bytes of each leaf} and a memory for the output.

        Answers {"tree", "leaves": [{"type", "dtype", "shape", "device", "overlaps", "kept", "start"}], "ns"}.
        Leaves of any other type than torch.Tensor are described, not copied.
        """
        memory = self.device.open(message["memory"], fds)
        _poison_heap(message["expected"], self.device.name)
        torch.manual_seed(message["seed"])
        args = self.slots[message["slot"]]
        with torch.no_grad():
            self.device.synchronize()
            start = _clock()
            output = self.model(*args)
            self.device.synchronize()
            elapsed = _clock() - start
        leaves: list[Any] = []
        tree = flatten(output, leaves)
        described, place = [], 0
        for leaf in leaves:
            entry: dict[str, Any] = {"type": type(leaf).__name__}
            described.append(entry)
            # Looking at a subclass would run its code, and let it compute what it put off.
            if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
                continue
            entry["device"] = str(leaf.device)
            if leaf.layout != torch.strided or leaf.__dict__:
                entry["type"] = "Tensor with attributes" if leaf.__dict__ else str(leaf.layout)
                continue
            plain = leaf.detach()
            size = plain.numel() * plain.element_size()
            entry |= {"dtype": dtype_name(plain.dtype), "shape": list(plain.shape), "start": -1}
            entry["overlaps"] = _overlaps(plain, self.ranges[message["slot"]])
            entry["kept"] = _overlaps(plain, [_span(t) for t in self.kept if t.numel()])
            if place + size <= memory.size:
                if size:
                    target = {"dtype": entry["dtype"], "shape": entry["shape"], "start": place, "bytes": size,
                              "offset": 0, "stride": list(torch.empty(plain.shape, device="meta").stride())}
                    memory.tensors([target])[0].copy_(plain)
                entry["start"] = place
                place += -(-size // ALIGN) * ALIGN
        self.kept = [leaf.detach() for leaf, entry in zip(leaves, described, strict=True) if "dtype" in entry]
        return {"tree": tree, "leaves": described, "ns": elapsed}

    def time(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Take samples: {"slots", "first", "samples", "repeats", "warmup_ns", "flush_bytes"} -> {"ns": [per sample]}.

        Before each sample a buffer is overwritten, outside the span; within it the model is called `repeats`
        times, on one slot after another. Outputs are allocated by the call and freed before the next.
        """
        slots = [self.slots[k] for k in message["slots"]]
        repeats, k = message["repeats"], message["first"]
        model, clock, count = self.model, _clock, len(slots)
        watch, synchronize = self.device.stopwatch(), self.device.synchronize
        self.kept = []
        if message["flush_bytes"] and self.flush is None:
            self.flush = torch.empty(message["flush_bytes"] // 4, dtype=torch.float32, device=self.device.name)
        samples = []
        gc.disable()
        try:
            with torch.no_grad():
                begin = clock()
                while True:
                    model(*slots[k % count])
                    synchronize()
                    k += 1
                    if clock() - begin >= message["warmup_ns"]:
                        break
                for i in range(message["samples"]):
                    if message["flush_bytes"] and self.flush is not None:
                        self.flush.fill_(float(i))
                    synchronize()
                    watch.start()
                    for _r in range(repeats):
                        output = model(*slots[k % count])
                        k += 1
                    samples.append(watch.stop()[0])
                    del output
        finally:
            gc.enable()
        return {"ns": samples}


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte and past the last byte that a non-empty tensor may touch."""
    low = tensor.data_ptr()
    extent = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return low, low + (extent + 1) * tensor.element_size()


def _overlaps(tensor: torch.Tensor, ranges: list[tuple[int, int]]) -> bool:
    if not tensor.numel():
        return False
    low, high = _span(tensor)
    return any(low < b and a < high for a, b in ranges)


def _poison_heap(sizes: list[int], device: str) -> None:
    """Fill memory of the output's sizes with 0xFF (NaN in every float type) and free it.

    The allocator hands such blocks out again, so an output that is not written shows.
    """
    with contextlib.suppress(RuntimeError, MemoryError):
        blocks = [torch.empty(size, dtype=torch.uint8, device=device).fill_(0xFF) for size in sizes if size]
        del blocks


if sys.byteorder != "little":  # pragma: no cover - no such platform is supported by torch wheels
    raise ImportError("shared memory between processes assumes a little-endian machine")
