"""From evidence to a status: what an exception or an exit of a candidate's process means."""

from __future__ import annotations

import dataclasses
import errno
import re
from collections.abc import Mapping
from typing import Any

from kernelevolve.records import Status

_NO_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|not enough memory|out of memory|std::bad_alloc|"
    r"virtual memory exhausted",
    re.IGNORECASE,
)
_DISK = {errno.EFBIG, errno.ENOSPC, errno.EDQUOT}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A status and the evidence for it, fit to show."""

    status: Status
    detail: str = ""


def of_error(error: Mapping[str, Any], *, building: bool) -> Verdict:
    """Verdict on an exception that the runner reported (see `inside.runner.describe`)."""
    kind, message = str(error.get("kind", "")), str(error.get("message", ""))
    text = f"{kind}: {message}\n{error.get('traceback', '')}".strip()
    if kind == "MemoryError" or _NO_MEMORY.search(message):
        status = Status.OUT_OF_MEMORY
    elif error.get("errno") in _DISK:
        status = Status.DISK_LIMIT
    elif error.get("errno") == errno.EAGAIN or "can't start new thread" in message:
        status = Status.RESOURCE_LIMIT
    else:
        status = Status.COMPILE_ERROR if building else Status.RUNTIME_ERROR
    return Verdict(status, text)


def of_exit(code: int | None, *, stage: str) -> Verdict:
    """Verdict on a process that ended, or closed its channel (`code` None), without an answer."""
    if code is None:
        return Verdict(Status.CRASHED, f"closed its channel during {stage} and answered nothing")
    if code < 0:
        import signal

        hint = "; the kernel's out-of-memory killer uses this signal too" if code == -signal.SIGKILL else ""
        return Verdict(Status.CRASHED, f"killed by signal {-code} ({signal.Signals(-code).name}) during {stage}{hint}")
    return Verdict(Status.CRASHED, f"exit code {code} during {stage} without an answer")
