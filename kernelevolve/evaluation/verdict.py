"""From evidence to a status: what an exception or an exit of a candidate's process means."""

from __future__ import annotations

import dataclasses
import errno
import re
from collections.abc import Mapping
from typing import Any

from kernelevolve.records import Status

TEXT_LIMIT = 16_000
"""Characters of evidence that a verdict keeps."""
_DISK = {errno.EFBIG, errno.ENOSPC, errno.EDQUOT}

MALFORMED = "MalformedAnswer"
"""Kind of an error that is no exception of a runner's code, but an answer that makes no sense."""
_KINDS = {
    MALFORMED: Status.DISHONEST,
    "OutOfResources": Status.LAUNCH_ERROR,
    "OutOfMemoryError": Status.OUT_OF_MEMORY,
    "MemoryError": Status.OUT_OF_MEMORY,
    # A kernel that is compiled at its first launch fails when it is called, not when it is imported.
    **dict.fromkeys(("CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct", "PTXASError"),
                    Status.COMPILE_ERROR),
}
"""What the name of an exception's class decides by itself: Triton's, torch's, Python's."""

_MESSAGES: tuple[tuple[str, Status], ...] = (
    # Host and device memory. First, because a driver names the failed launch beside it.
    (r"can't allocate memory|cannot allocate memory|not enough memory|out of memory|std::bad_alloc|"
     r"virtual memory exhausted|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED|"
     # PyTorch asks NVML who holds the memory before it says that there is none, and may not be answered.
     r"NVML_SUCCESS == .{0,120}CUDACachingAllocator", Status.OUT_OF_MEMORY),
    # The device ran something that it must not: its context is gone.
    (r"illegal memory access|misaligned address|illegal address|illegal instruction|device-side assert|"
     r"launch timed out|launch timeout|unspecified launch failure|unspecified launch error|hardware stack error|"
     r"invalid address space|invalid program counter|uncorrectable ECC|memory access fault|"
     r"hipErrorIllegalAddress|hipErrorLaunchFailure|hipErrorAssert|cudaErrorIllegalAddress|cudaErrorAssert|"
     r"CUDA_ERROR_(?:ILLEGAL_ADDRESS|MISALIGNED_ADDRESS|ASSERT|LAUNCH_TIMEOUT|LAUNCH_FAILED|ILLEGAL_INSTRUCTION)|"
     r"an illegal .{0,30} was encountered|not registered with any CUDA device", Status.DEVICE_FAULT),
    # The driver or the launcher refused to start it.
    (r"out of resource|too many resources requested|too much shared|uses too much shared data|shared memory, Required|"
     r"exceeds? (?:the )?(?:maximum )?shared memory|invalid configuration|invalid device function|no kernel image|"
     r"(?:CUDA|HIP|Triton) (?:driver )?error[^\n]{0,40}invalid argument|too many registers|invalid resource handle|"
     r"CUDA_ERROR_(?:LAUNCH_OUT_OF_RESOURCES|INVALID_VALUE|INVALID_HANDLE)|cudaErrorInvalidConfiguration|"
     r"cudaErrorLaunchOutOfResources|hipErrorInvalidConfiguration|hipErrorLaunchOutOfResources|cooperative launch",
     Status.LAUNCH_ERROR),
    (r"can't start new thread", Status.RESOURCE_LIMIT),
)
"""Patterns in the order in which they are tried, and what a message that matches one means."""
_COMPILED = [(re.compile(pattern, re.IGNORECASE), status) for pattern, status in _MESSAGES]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A status and the evidence for it, fit to show."""

    status: Status
    detail: str = ""


def of_error(error: Any, *, building: bool) -> Verdict:
    """Verdict on an exception that the runner reported (see `inside.runner.describe`), in whatever form that came."""
    if not isinstance(error, Mapping):
        return Verdict(Status.DISHONEST, "the answer of its process is malformed: an error without a description")
    kind, message = _text(error.get("kind", "")), _text(error.get("message", ""))
    text = clean(f"{kind}: {message}\n{_text(error.get('traceback', ''))}".strip())
    return Verdict(_status(kind, message, error.get("errno"), building=building), text)


def _status(kind: str, message: str, number: Any, *, building: bool) -> Status:
    if kind in _KINDS:
        return _KINDS[kind]
    if type(number) is int and number in _DISK:
        return Status.DISK_LIMIT
    if type(number) is int and number == errno.EAGAIN:
        return Status.RESOURCE_LIMIT
    for pattern, status in _COMPILED:
        if pattern.search(message):
            # What a compiler prints while a module is imported may hold any of these words.
            if building and status in (Status.DEVICE_FAULT, Status.LAUNCH_ERROR):
                break
            return status
    return Status.COMPILE_ERROR if building else Status.RUNTIME_ERROR


def of_exit(code: int | None, *, stage: str) -> Verdict:
    """Verdict on a process that ended, or closed its channel (`code` None), without an answer."""
    if code is None:
        return Verdict(Status.CRASHED, f"closed its channel during {stage} and answered nothing")
    if code < 0:
        import signal

        hint = "; the kernel's out-of-memory killer uses this signal too" if code == -signal.SIGKILL else ""
        return Verdict(Status.CRASHED, f"killed by signal {-code} ({_signal_name(-code)}) during {stage}{hint}")
    return Verdict(Status.CRASHED, f"exit code {code} during {stage} without an answer")


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """Text that can be stored anywhere: bounded (head and, more of it, tail), and without half surrogates."""
    if len(text) > limit:
        text = text[: limit // 4] + "\n…\n" + text[-limit * 3 // 4 :]
    return text.encode("utf-8", "replace").decode("utf-8")


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return "no name"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return clean(value if isinstance(value, str) else repr(value))
