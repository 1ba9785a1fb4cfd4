"""What a worker does with a problem file: import it, check it, describe it. Never called in the user's process."""

from __future__ import annotations

import contextlib
import resource
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch

from kernelevolve import errors, records
from kernelevolve.problems import check, traffic, weakness
from kernelevolve.problems.code_hash import code_hash
from kernelevolve.problems.module import ProblemModule


def inspect(payload: dict[str, Any]) -> dict[str, Any]:
    """Check one file; returns those fields of `records.Problem` that come from its content, as JSON.

    Args:
        payload: {"source": str, "path": str, "timeout_s": float}.

    Raises:
        ProblemError: With file, line and what was expected.
    """
    source, path = payload["source"], payload["path"]
    with _deadline(payload["timeout_s"], path) as clock, torch.no_grad():
        clock.phase = "import"
        module = ProblemModule(source, path)
        clock.phase = "the checks of the reference"
        sample = check.check_reference(module, clock)
        clock.phase = "the checks of REFERENCES and CASES"
        check.check_references(module, sample)
        check.check_cases(module)
        clock.phase = "the search for stubs that pass"
        verdict = weakness.examine(module, sample, clock)
        clock.phase = "counting bytes and operations"
        return {
            "code_hash": code_hash(source),
            "inputs": records.to_dict(tuple(
                _spec(t, f"input{i}") for i, t in enumerate(sample.inputs) if isinstance(t, torch.Tensor)
            )),
            "outputs": records.to_dict(tuple(_spec(t, where) for where, t in sample.output)),
            "parameters": records.to_dict(tuple(_spec(t, name) for name, t in sample.state.items())),
            "references": list(module.references),
            "cases": list(module.cases),
            "tolerance": module.tolerance,
            "backward": module.backward,
            "weak": verdict.reason,
            "bytes_min": traffic.bytes_min(sample, verdict.matters, clock),
            "flops": traffic.flops(sample),
        }


def _spec(t: torch.Tensor, name: str) -> records.TensorSpec:
    return records.TensorSpec(tuple(t.shape), str(t.dtype).removeprefix("torch."), name)


class _PastDeadline(BaseException):
    """Raised into the file's own code; no `except Exception` of it stops this."""


class Clock:
    """How much of the limit is left, and what is being done."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.phase = "import"
        self._end = time.monotonic() + timeout_s

    def left_s(self) -> float:
        """Seconds until the limit."""
        return self._end - time.monotonic()


@contextlib.contextmanager
def _deadline(timeout_s: float, path: str) -> Iterator[Clock]:
    """Turn the limit into a ProblemError that names the line under way. Native code is only stopped by the caller."""
    clock = Clock(timeout_s)
    line = 1

    def stop(_signal: int, frame: FrameType | None) -> None:
        nonlocal line
        while frame is not None and frame.f_code.co_filename != path:
            frame = frame.f_back
        line = frame.f_lineno if frame is not None else 1
        raise _PastDeadline

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        yield clock
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        raise errors.ProblemError(
            f"{path}:1: {clock.phase} needs more memory than the {limit / 2**30:.1f} GiB it may have: {error}. "
            "Expected about six times the inputs and outputs to fit; use smaller sizes or a larger machine"
        ) from error
    except _PastDeadline:
        raise errors.ProblemError(
            f"{path}:{line}: {clock.phase} did not end within {timeout_s:g} s; expected import and checks together to "
            "take less. Look for an endless loop or a download, use smaller sizes, or raise timeout_s"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
