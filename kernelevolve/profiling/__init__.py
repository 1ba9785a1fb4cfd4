"""Why a kernel is slow: parts of evidence, one file each, and a diagnosis by readable rules.

A new part (a hardware counter tool, a tracer) is one file with a `Profiler` and one line in `PROFILERS`.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

from kernelevolve.errors import MissingDependencyError, UnknownNameError
from kernelevolve.profiling.base import Profiler, Subject, missing
from kernelevolve.profiling.diagnosis import diagnose
from kernelevolve.profiling.library import Library
from kernelevolve.profiling.remarks import Remarks
from kernelevolve.profiling.roofline import Roofline
from kernelevolve.profiling.static import Static
from kernelevolve.records import Diagnosis, Problem, Result, Status

log = logging.getLogger(__name__)

PROFILERS: dict[str, Profiler] = {part.name: part for part in (Roofline(), Static(), Remarks(), Library())}
"""Parts by name, in the order in which they are taken."""


def get(name: str) -> Profiler:
    """The part of that name. Raises UnknownNameError."""
    if name not in PROFILERS:
        raise UnknownNameError("profiler", name, list(PROFILERS))
    return PROFILERS[name]


def profile(
    build_dir: Path, result: Result, facts: dict[str, Any], problem: Problem, *, one_thread_ms: float | None = None
) -> tuple[dict[str, Any], Diagnosis]:
    """Profile a candidate after it was timed: all parts that apply, as JSON values by part name, and the diagnosis.

    `build_dir` is the folder that the candidate built into; `facts` are the platform's; `one_thread_ms` its time with
    one thread when it was measured. The candidate is not run. A part that cannot be had reads {"missing": why}; a
    candidate that failed is not taken apart. Costs some 30 ms, or one compilation when the build left no remarks;
    equal code costs nothing a second time. Never raises on what a candidate left behind.
    """
    started_s = time.perf_counter()
    subject = Subject(Path(build_dir), result, facts, problem)
    parts: dict[str, Any] = {}
    if result.correct or result.status is Status.SUSPECT:
        parts = {name: _measure(part, subject) for name, part in PROFILERS.items() if part.applies(subject)}
    diagnosis = diagnose(parts, subject, one_thread_ms=one_thread_ms)
    return {**parts, "profile_s": time.perf_counter() - started_s}, diagnosis


def _measure(part: Profiler, subject: Subject) -> dict[str, Any]:
    try:
        return part.measure(subject)
    except MissingDependencyError as error:
        return missing(str(error))
    except OSError as error:
        return missing(f"{type(error).__name__}: {error}")
    except Exception as error:
        # A measured result must not be lost because its build folder holds something no part foresaw.
        log.exception("profiling part %s failed on %s", part.name, subject.build_dir)
        return missing(f"this part failed: {type(error).__name__}: {error}")


__all__ = ["PROFILERS", "Profiler", "Subject", "diagnose", "get", "missing", "profile"]
