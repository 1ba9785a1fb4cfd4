"""Memory lent between processes on a CUDA device, and whether the fork server stays clear of it; see `gpu_smoke.py`."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from kernelevolve import workers
from kernelevolve.platforms import PLATFORMS

PRELOADS = """
import importlib, os, sys, traceback
seen = set()
def opened():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            continue
        if "nvidia" in name:
            found.add(name)
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        found.add("threads: " + " ".join(sorted(open("/proc/self/task/%s/comm" % t).read().strip() for t in threads)))
    return found
busy = False
def hook(event, args):
    global busy
    if busy or event not in ("import", "ctypes.dlopen", "subprocess.Popen"):
        return
    busy = True
    new = opened() - seen
    if new:
        seen.update(new)
        print("   before", event, str(args[0])[:80], "were opened:", sorted(new))
        stack = [f for f in traceback.extract_stack()[:-1] if "importlib" not in f.filename]
        for f in stack[-7:]:
            print("      %s:%s %s" % (f.filename.split("-packages/")[-1], f.lineno, f.line))
    busy = False
sys.addaudithook(hook)
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, "is not there:", error)
    busy = True
    new = opened() - seen
    seen.update(new)
    print(name, "->", sorted(new) or "nothing", flush=True)
    busy = False
torch = sys.modules["torch"]
print("initialized", torch.cuda.is_initialized(), "bad fork", torch.cuda._is_in_bad_fork())
"""


def preload(smoke: Any) -> None:
    """Which import of the server's opens the device, with the stack at the next import event."""
    from kernelevolve.workers.environment import scrubbed
    from kernelevolve.workers.server import PRELOAD

    for names in (PRELOAD, ("torch", "triton")):
        done = subprocess.run([sys.executable, "-c", PRELOADS, *names], capture_output=True, text=True, timeout=120,
                              check=False, env=scrubbed())
        print(" ".join(names))
        print(done.stdout[-5000:], done.stderr[-1500:])


def open_devices(pid: str) -> list[str]:
    """Device nodes that a process has open."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(link.readlink()))
    return sorted({name for name in found if "nvidia" in name})


@functools.cache
def opened_by_torch() -> tuple[str, ...]:
    """Device nodes that importing PyTorch alone leaves open here: some builds bring a library that looks at once."""
    code = ("import sys, torch\nsys.path.insert(0, sys.argv[1])\nfrom benchmarks.gpu_memory import open_devices\n"
            "print('\\n'.join(open_devices('self')))")
    command = [sys.executable, "-c", code, str(Path(__file__).parent.parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return tuple(done.stdout.split())


def untouched(smoke: Any) -> None:
    """The server that forks workers must have no more of the device open than importing PyTorch leaves."""
    from kernelevolve.workers import pool

    assert pool._server is not None
    pid = pool._server.process.pid
    opened = open_devices(str(pid))
    threads = sorted((task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir())
    print("open device files: server", opened, "this process", open_devices("self"), "after import torch alone",
          list(opened_by_torch()), "| threads of the server:", threads)
    if set(opened) - set(opened_by_torch()):
        print("NOTE: the fork server has touched the device")
        smoke.failed.append("the fork server has touched the device")


def serve(channel: Any) -> None:
    """A worker that lends and borrows on command; {"op": name, ...} -> {"value"} or {"error"}."""
    peer = Peer()
    while True:
        message, _ = channel.recv()
        op = message.pop("op")
        if op == "exit":
            return
        try:
            channel.send({"value": getattr(peer, op)(**message)})
        except Exception:
            channel.send({"error": traceback.format_exc()})


class Peer:
    """One end of the round trip. Memories and tensors by name."""

    def __init__(self) -> None:
        self.device = PLATFORMS["cuda"].device
        self.memories: dict[str, Any] = {}
        self.specs: dict[str, Any] = {}
        self.tensors: dict[str, Any] = {}

    def hello(self) -> str:
        import torch

        start = time.perf_counter()
        self.device.synchronize()
        return f"pid {os.getpid()} {torch.cuda.get_device_name()} in {time.perf_counter() - start:.2f} s"

    def lend(self, name: str, kind: str = "mixed", size: int = 0) -> Any:
        import torch

        from kernelevolve.evaluation.inside.tensors import layout

        leaves = [torch.arange(1000, dtype=torch.float32), torch.arange(777, dtype=torch.int64),
                  torch.rand(33, 65).T, torch.ones(5, dtype=torch.bool)] if kind == "mixed" else \
            [torch.ones(size, dtype=torch.uint8)]
        leaves = [leaf.to("cuda") for leaf in leaves]
        specs, total = layout(leaves)
        memory = self.device.lend(total)
        zero = bool((memory.bytes == 0).all())
        memory.guard(specs)
        memory.write(leaves, specs)
        self.device.synchronize()
        ticket, fds = memory.ticket()
        self.memories[name], self.specs[name] = memory, specs
        sums = [float(t.double().sum()) for t in memory.tensors(specs)]
        return {"ticket": ticket, "fds": fds, "specs": specs, "sums": sums, "zeroed": zero,
                "breached": memory.breached(specs), "size": memory.size, "asked": total,
                "address": hex(memory.bytes.data_ptr())}

    def open(self, name: str, ticket: Any, specs: Any) -> Any:
        start = time.perf_counter()
        memory = self.device.open(ticket, [])
        took = time.perf_counter() - start
        self.memories[name], self.specs[name] = memory, specs
        tensors = memory.tensors(specs)
        return {"sums": [float(t.double().sum()) for t in tensors], "open_s": took,
                "devices": [str(t.device) for t in tensors], "shapes": [list(t.shape) for t in tensors],
                "strides": [list(t.stride()) for t in tensors], "types": [type(t).__name__ for t in tensors],
                "storage_bytes": [t.untyped_storage().nbytes() for t in tensors],
                "spec_bytes": [s["bytes"] for s in specs], "address": hex(memory.bytes.data_ptr())}

    def add(self, name: str) -> Any:
        self.memories[name].tensors(self.specs[name])[0].add_(1)
        self.device.synchronize()

    def sums(self, name: str) -> Any:
        return [float(t.double().sum()) for t in self.memories[name].tensors(self.specs[name])]

    def breached(self, name: str) -> Any:
        return self.memories[name].breached(self.specs[name])

    def poke(self, name: str, place: int) -> Any:
        self.memories[name].bytes[place] = 0
        self.device.synchronize()

    def keep(self, name: str) -> Any:
        """Hold a tensor, let the memory object go."""
        self.tensors[name] = self.memories.pop(name).tensors(self.specs[name])[0]

    def kept_sum(self, name: str) -> float:
        return float(self.tensors[name].double().sum())

    def drop(self, name: str) -> Any:
        self.memories.pop(name, None)
        self.tensors.pop(name, None)

    def free_mib(self) -> float:
        import torch

        return torch.cuda.mem_get_info()[0] / 2**20

    def swap(self) -> Any:
        """A ticket that is none, and a stopwatch."""
        import torch

        from kernelevolve.errors import WorkerError

        words = []
        for ticket in ({}, {"size": 5, "handle": "zz"}, {"size": 2**21, "handle": "00" * 64}):
            try:
                self.device.open(ticket, [])
                words.append("opened")
            except WorkerError as error:
                words.append(str(error))
        watch = self.device.stopwatch()
        x = torch.rand(2**26, device="cuda")
        spans = []
        for run in (lambda: None, lambda: x.mul_(1.0), lambda: [x.mul_(1.0) for _ in range(20)]):
            self.device.synchronize()
            watch.start()
            run()
            spans.append(watch.stop())
        side = torch.cuda.Stream()
        self.device.synchronize()
        watch.start()
        with torch.cuda.stream(side):
            for _ in range(20):
                x.mul_(1.0)
        spans.append(watch.stop())
        return {"bad tickets": words,
                "spans (device ns, host ns): nothing, one, twenty, twenty on a side stream": spans}


def ipc(smoke: Any) -> None:
    lender = workers.start("benchmarks.gpu_memory:serve")
    borrower = workers.start("benchmarks.gpu_memory:serve")

    def ask(who: Any, op: str, **message: Any) -> Any:
        who.channel.send({"op": op, **message}, timeout_s=60)
        answer, _ = who.channel.recv(60)
        if "error" in answer:
            raise RuntimeError(f"{op}: {answer['error']}")
        return answer["value"]

    try:
        print("lender", ask(lender, "hello"))
        print("borrower", ask(borrower, "hello"))
        untouched(smoke)
        lent = ask(lender, "lend", name="a")
        print("lent", {k: v for k, v in lent.items() if k not in ("specs",)})
        assert lent["zeroed"], "fresh memory was not zero"
        assert lent["breached"] is None
        got = ask(borrower, "open", name="a", ticket=lent["ticket"], specs=lent["specs"])
        print("opened", got)
        assert got["sums"] == lent["sums"], "the bytes are not the same"
        assert got["storage_bytes"] == got["spec_bytes"], "a storage is larger than its span"
        ask(borrower, "add", name="a")
        now = ask(lender, "sums", name="a")
        assert now[0] == lent["sums"][0] + 1000, (now, lent["sums"])
        assert ask(lender, "breached", name="a") is None
        for place in (lent["size"] - 1, lent["asked"] - 1, lent["specs"][0]["start"] - 1, 0):
            ask(borrower, "poke", name="a", place=place)
            found = ask(lender, "breached", name="a")
            print("poked", place, "found", found)
            assert found == place, "a write into the guard band was not seen"
        ask(borrower, "keep", name="a")
        print("tensor outlives its memory object:", ask(borrower, "kept_sum", name="a") == now[0])
        print("bad tickets and stopwatch", json.dumps(ask(borrower, "swap"), indent=1))
        free = ask(lender, "free_mib")
        big = ask(lender, "lend", name="b", kind="bytes", size=2**30)
        ask(borrower, "open", name="b", ticket=big["ticket"], specs=big["specs"])
        held = ask(lender, "free_mib")
        ask(borrower, "drop", name="b")
        ask(lender, "drop", name="b")
        after = ask(lender, "free_mib")
        print(f"free MiB before {free:.0f}, with 1 GiB lent {held:.0f}, after both dropped {after:.0f}")
        # The lender frees while the borrower still holds on, then lends again: is the new one really new?
        old = ask(lender, "lend", name="c", kind="bytes", size=2**22)
        ask(borrower, "open", name="c", ticket=old["ticket"], specs=old["specs"])
        ask(lender, "drop", name="c")
        new = ask(lender, "lend", name="d")
        try:
            seen = ask(borrower, "open", name="d", ticket=new["ticket"], specs=new["specs"])
            print("freed while borrowed, lent again:", seen["sums"] == new["sums"], old["address"], new["address"],
                  seen["address"])
            print("what the borrower still reads of the freed one:", ask(borrower, "sums", name="c"))
        except RuntimeError as error:
            print("freed while borrowed, lent again:", error)
        ask(borrower, "drop", name="c")
        for size in (2**12, 2**22, 2**28, 2**30):
            spans = []
            for _ in range(8):
                start = time.perf_counter()
                memory = ask(lender, "lend", name="t", kind="bytes", size=size)
                lent_s = time.perf_counter() - start
                opened = ask(borrower, "open", name="t", ticket=memory["ticket"], specs=memory["specs"])
                ask(borrower, "drop", name="t")
                ask(lender, "drop", name="t")
                spans.append((lent_s * 1e3, opened["open_s"] * 1e3, (time.perf_counter() - start) * 1e3))
            print(f"{size} bytes: lend (with fill and guard) / open / all: ",
                  " ".join(f"{a:.2f}/{b:.2f}/{c:.2f}" for a, b, c in spans), "ms")
    finally:
        for who in (lender, borrower):
            text = who.log()
            who.kill()
            if text.strip():
                print("log:", text[-3000:])
