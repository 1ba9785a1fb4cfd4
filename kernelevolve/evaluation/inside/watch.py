"""Did the candidate leave the process as it found it? A snapshot before it is loaded, compared after each call.

Whatever is found here is said by the candidate's own process, so it catches accidents and known tricks, and proves
nothing to the contrary: the judge decides on evidence of its own too.
"""

from __future__ import annotations

import builtins
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelevolve.evaluation.inside.library_log import compiled_frames
from kernelevolve.workers.harden import adopt_orphans

# Captured before a candidate is imported, which may replace them.
_clock, _sleep, _listdir, _getcwd = time.perf_counter_ns, time.sleep, os.listdir, os.getcwd
_current_frames, _get_ident, _get_native_id = sys._current_frames, threading.get_ident, threading.get_native_id
_open, _read, _close = os.open, os.read, os.close

OWN_VARIABLES = "KERNELEVOLVE_"
BUILD_VARIABLES = frozenset((
    "PATH", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "LIBRARY_PATH", "LD_LIBRARY_PATH", "CPATH", "CUDA_HOME",
    "CUDA_PATH", "ROCM_HOME", "TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "MAX_JOBS", "TORCH_EXTENSIONS_DIR",
))
"""Variables that choose compilers and where they look; a module may change them while it builds."""
MAX_THREADS = 256
"""Threads that a call may leave, besides eight for every processor."""
MAX_PROCESSES = 64
QUIET_S = 0.001
"""When to look for threads that still run after a call; then at growing distances."""
PATIENCE_NS = 1_000_000_000
"""How long they may take: threads of OpenMP that wait at a barrier spin for up to 0.2 s (LLVM's default)."""
COMPILERS = ("torch.", "triton.")
"""Threads that run functions of these belong to compilers: torch.compile in a PyTorch candidate, Triton's own."""
COMPILER_VARIABLES = ("TORCHINDUCTOR", "TRITON", "TORCH_COMPILE")
_TORCH = str(Path(torch.__file__).parent) + os.sep
_EXECUTOR = str(Path("concurrent", "futures", "thread.py"))

_FLAGS: dict[str, Callable[[], Any]] = {
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "float32 matmul precision": torch.get_float32_matmul_precision,
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "number of threads": torch.get_num_threads,
    "number of interop threads": torch.get_num_interop_threads,
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "autocast on cpu": lambda: torch.is_autocast_enabled("cpu"),
    "autocast on cuda": lambda: torch.is_autocast_enabled("cuda"),
    "anomaly mode": torch.is_anomaly_enabled,
    "dispatch modes": torch._C._len_torch_dispatch_stack,
    "function modes": torch._C._len_torch_function_stack,
    "global module hooks": lambda: sum(len(v) for k, v in vars(torch.nn.modules.module).items()
                                       if k.startswith("_global_") and isinstance(v, dict)),
    "tracing function": lambda: (id(sys.gettrace()), id(sys.getprofile())),
    "working folder": lambda: _getcwd(),
} | {
    f"torch.backends.{where}.{name}": lambda where=where, name=name: getattr(getattr(torch.backends, where), name)
    for where, names in {
        "cudnn": ("enabled", "benchmark", "deterministic", "allow_tf32"),
        "mkldnn": ("enabled", "deterministic", "allow_tf32"),
    }.items() for name in names
} | {
    f"torch.backends.cuda.matmul.{name}": lambda name=name: getattr(torch.backends.cuda.matmul, name)
    for name in ("allow_tf32", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction",
                 "fp32_precision")
} | {
    f"torch.backends.cuda.{name}": getattr(torch.backends.cuda, name)
    for name in ("flash_sdp_enabled", "mem_efficient_sdp_enabled", "math_sdp_enabled", "cudnn_sdp_enabled")
    if hasattr(torch.backends.cuda, name)
}
"""What a call must leave as it was, and how it is read. Random generators are not here: drawing numbers is honest."""

_MODULES: tuple[ModuleType, ...] = (
    builtins, time, json, os, socket, torch, torch.nn.functional, torch.linalg, torch.cuda, torch._C, torch._C._nn,
    torch.testing, torch.random,
)
_CLASSES: tuple[type, ...] = (
    torch.Tensor, torch.nn.Module, torch.nn.Parameter, torch.UntypedStorage, torch.cuda.Event, torch.cuda.Stream,
    socket.socket, json.JSONEncoder, json.JSONDecoder, torch.Generator,
)


class Watch:
    """The state of this process before a candidate came."""

    def __init__(self, *own: Any) -> None:
        """Take the snapshot; `own` are classes and modules of ours that must stay what they are too."""
        adopt_orphans()  # a daemon whose parent is gone comes back here, where it is counted
        self._owners = [*_MODULES, *_CLASSES, *own]
        self._functions = [_callables(owner) for owner in self._owners]
        self._flags = _read_flags()
        self._variables = dict(os.environ)
        self._python_threads = set(_current_frames())
        self._native_threads = len(_threads())

    def loaded(self) -> None:
        """The module is imported: variables that it added, or that choose compilers, are its own from here on."""
        for name, value in os.environ.items():
            if name not in self._variables or name in BUILD_VARIABLES:
                self._variables[name] = value

    def changes(self) -> list[str]:
        """What differs from the snapshot, in words."""
        found = [f"{name} was {was}, is {now}" for (name, was), now in zip(self._flags.items(), _read_flags().values(),
                                                                          strict=True) if was != now]
        for owner, before in zip(self._owners, self._functions, strict=True):
            space = _space(owner)
            found += [f"{owner.__name__}.{name} was replaced" for name, value in before.items()
                      if space.get(name) is not value and not _torch_own(space.get(name))]
        now = dict(os.environ)
        found += [f"environment variable {name} was changed" for name in sorted(self._variables.keys() | now.keys())
                  if self._variables.get(name) != now.get(name) and not self._may_change(name)]
        return found[:20]

    def _may_change(self, name: str) -> bool:
        compilers_own = name not in self._variables and any(part in name for part in COMPILER_VARIABLES)
        return name.startswith(OWN_VARIABLES) or compilers_own

    def company(self) -> tuple[list[str], list[str]]:
        """Threads and processes beside this one: what must not be there, and what there is too much of."""
        left = [f"a Python thread is alive ({name})" for name in self._strangers()]
        threads, children = _threads(), _children()
        limit = MAX_THREADS + 8 * (os.cpu_count() or 1)
        many = []
        if len(threads) - self._native_threads > limit:
            many.append(f"{len(threads)} threads; expected at most {limit} more than before")
        if len(children) > MAX_PROCESSES:
            many.append(f"{len(children)} child processes; expected none")
        elif children:
            left.append(f"{len(children)} child processes are alive ({', '.join(children[:4])})")
        return left[:5], many

    def _strangers(self) -> Iterator[str]:
        threads = {t.ident: t for t in list(threading._active.values())}  # type: ignore[attr-defined]
        mine = _get_ident()
        for ident, frame in _current_frames().items():
            if ident == mine or ident in self._python_threads:
                continue
            idle = frame.f_code.co_filename.endswith(_EXECUTOR)  # an executor's thread that waits for work
            names = set()
            caller: Any = frame
            while caller is not None:
                names.add(str(caller.f_globals.get("__name__", "")))
                caller = caller.f_back
            if any(n.startswith(COMPILERS) for n in names) or (idle and compiled_frames()):
                continue
            yield str(getattr(threads.get(ident), "name", "started without threading"))[:60]


def settle() -> str:
    """Wait until no other thread of the process runs or wants to, at once for most; says when it does not come so far.

    States, not processor time: on a machine that is busy elsewhere a thread that works gets little of it.
    """
    begin, wait = _clock(), QUIET_S
    while True:
        _sleep(wait)
        working = _working()
        if not working:
            return ""
        if _clock() - begin > PATIENCE_NS:
            return (f"the process goes on working after the call: {working} threads still run "
                    f"{(_clock() - begin) / 1e6:.0f} ms later; expected all work to be done on return")
        wait = min(2 * wait, 0.02)


def _working() -> int:
    """Threads, this one excepted, that run or wait for a processor."""
    own, count = str(_get_native_id()), 0
    for thread in _threads():
        state = _content(f"/proc/self/task/{thread}/stat").rpartition(")")[2].split()[:1]
        count += thread != own and state == ["R"]
    return count


def _read_flags() -> dict[str, str]:
    return {name: _value(read) for name, read in _FLAGS.items()}


def _value(read: Callable[[], Any]) -> str:
    try:
        return str(read())
    except Exception as error:  # some flags cannot be read on some machines: that must not change either
        return f"unreadable ({type(error).__name__})"


def _space(owner: Any) -> dict[str, Any]:
    """Names of a module or a class, inherited ones included, without running any descriptor."""
    if not isinstance(owner, type):
        return vars(owner)
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        found.update(vars(base))
    return found


def _callables(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in _space(owner).items()
            if callable(value) or isinstance(value, (property, staticmethod, classmethod))}


def _torch_own(value: Any) -> bool:
    """Whether PyTorch itself put it there: torch.compile wraps Module.__init__ when it is first used."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(_TORCH)


def _threads(process: str = "self") -> list[str]:
    try:
        return _listdir(f"/proc/{process}/task")
    except OSError:
        return []


def _children() -> list[str]:
    """Live descendants of this process, "pid name"; without those that only wait to be reaped.

    No more than show that there are too many.
    """
    found: list[str] = []
    queue = ["self"]
    while queue and len(found) <= MAX_PROCESSES:
        process = queue.pop()
        for thread in _threads(process):
            for pid in _content(f"/proc/{process}/task/{thread}/children").split():
                status = _content(f"/proc/{pid}/stat")
                name, _, rest = status.partition("(")[2].rpartition(")")
                if rest.split()[:1] in ([], ["Z"], ["X"]) or "compile_worker" in _content(f"/proc/{pid}/cmdline"):
                    continue
                found.append(f"{pid} {name}")
                queue.append(pid)
    return found


def _content(path: str) -> str:
    try:
        fd = _open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return _read(fd, 4096).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        _close(fd)
