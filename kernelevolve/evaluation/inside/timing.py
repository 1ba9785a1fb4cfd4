"""The timed calls, inside the process that a candidate (or a baseline) lives in."""

from __future__ import annotations

import gc
import os
import time
from typing import TYPE_CHECKING, Any

import torch

from kernelevolve.evaluation.inside.handover import Range, hand_over, ranges
from kernelevolve.evaluation.inside.tensors import flatten, unflatten

if TYPE_CHECKING:
    from kernelevolve.evaluation.inside.runner import Runner

_clock = time.perf_counter_ns  # captured before a candidate is imported, which may replace it
_VARIABLES = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OPENBLAS_NUM_THREADS",
              "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES",
              "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Environment variables that change how fast the same code is."""


class Timer:
    """Arguments of timed calls, the buffer that empties the caches, and the outputs that may be asked for."""

    def __init__(self) -> None:
        self.args: list[tuple[Any, ...]] = []
        self.inputs: list[list[Range]] = []
        self.flush: torch.Tensor | None = None
        self.outputs: list[Any] = []
        """Of the last span's calls: all of them, or the last two."""
        self.slots: list[int] = []
        """Which slot each of these was called on."""

    def pool(self, runner: Runner, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Set every slot: {"slots": [{"args", "specs"}]} and one memory for all, kept mapped."""
        memory = runner.device.open(message["memory"], fds)
        self.args, self.inputs = [], []
        for slot in message["slots"]:
            leaves = memory.tensors(slot["specs"])
            self.args.append(tuple(unflatten(slot["args"], leaves)))
            self.inputs.append(ranges(leaves))
        return {}

    def take(self, runner: Runner, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take samples: {"warm": a slot, "warmup_ns", "spans": [[slots]], "flush_bytes", "seed", "keep"}.

        Warm up for that long (0: not at all), then take one sample per span: a buffer is overwritten and the random
        numbers are seeded, outside the span; within it the model is called on one slot after another. An output is
        freed when its successor exists, or kept with all of the last span. Answers {"ns": on the device's own clock,
        "host": on the host's until the whole device was idle, "issue": until the last call had come back}, one value
        per span, and with a memory "last": the last output, handed over.
        """
        args, model, clock = self.args, runner.model, _clock
        watch, synchronize = runner.device.stopwatch(), runner.device.synchronize
        runner.kept = []
        self.outputs, self.slots = [], []
        spans, keep, warm, seed = message["spans"], message["keep"], message["warm"], message["seed"]
        if message["flush_bytes"] and self.flush is None:
            self.flush = torch.empty(message["flush_bytes"] // 4, dtype=torch.float32, device=runner.device.name)
        flush = self.flush if message["flush_bytes"] else None
        ns, host, issue = [], [], []
        output: Any = None
        kept: list[Any] = []
        gc.disable()
        try:
            with torch.no_grad():
                begin = clock()
                while message["warmup_ns"] and clock() - begin < message["warmup_ns"]:
                    output = model(*args[warm])
                    synchronize()
                for i, span in enumerate(spans):
                    calls = [args[k] for k in span]
                    kept, before = [], output
                    _seed(seed + i, runner.device.name)
                    if flush is not None:
                        flush.fill_(float(i))
                    synchronize()
                    start = clock()
                    watch.start()
                    if keep:
                        for call in calls:
                            output = model(*call)
                            kept.append(output)
                    else:
                        for call in calls:
                            before = output
                            output = model(*call)
                    issued = clock()
                    device_ns, host_ns = watch.stop()
                    issue.append(issued - start)
                    ns.append(device_ns)
                    host.append(host_ns)
                if flush is not None and not spans:
                    flush.fill_(1.0)
                    synchronize()
        finally:
            gc.enable()
        if spans:
            self.outputs = [before, *kept] if keep else [before, output]
            self.slots = [-1, *spans[-1]] if keep else [-1, spans[-1][-1]]
        answer: dict[str, Any] = {"ns": ns, "host": host, "issue": issue}
        if "memory" in message:  # at once: work that goes on behind a call's back has no time to end
            answer["last"] = self.output(runner, {"memory": message["memory"], "index": -1}, fds)
        return answer

    def output(self, runner: Runner, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Hand over an output of the last span, {"index"} from its end, into a memory; see `hand_over`.

        It must share memory neither with its inputs nor with any other output that is still held.
        """
        memory = runner.device.open(message["memory"], fds)
        index = message["index"]
        others: list[Any] = []
        for k, other in enumerate(self.outputs):
            if k != index % len(self.outputs):
                flatten(other, others)
        plain = [t for t in others if type(t) is torch.Tensor and t.layout == torch.strided]
        answer, _ = hand_over(self.outputs[index], memory, self.inputs[self.slots[index]], ranges(plain))
        return answer


def _seed(seed: int, device: str) -> None:
    """What torch.manual_seed does for these two, in a hundredth of its time."""
    torch.default_generator.manual_seed(seed)
    if device != "cpu":
        torch.get_device_module(device).manual_seed_all(seed)


def flags() -> dict[str, Any]:
    """What this process was set to, as far as it changes how fast the same code is."""
    return {
        "threads": torch.get_num_threads(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "mkldnn": torch.backends.mkldnn.enabled,
        "flush_denormal": bool(torch.tensor([1e-310], dtype=torch.float64).mul(1).item() == 0),
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }
