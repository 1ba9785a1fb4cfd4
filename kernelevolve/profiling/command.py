"""Run a compiler tool with a time limit: the whole process group goes when the limit passes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import signal
import subprocess
from pathlib import Path

from kernelevolve.errors import MissingDependencyError

PACKAGES = {"objdump": "binutils", "g++": "g++"}
"""Debian's package of each tool; other distributions name them alike."""
MEMORY_BYTES = 4 * 2**30
"""Address space of a tool: what it reads was written by a candidate."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a tool said. `code` is None when it was stopped at its limit."""

    code: int | None
    stdout: str
    stderr: str


def run(arguments: list[str], cwd: Path, *, timeout_s: float) -> Answer:
    """Run a tool in `cwd`, in English, without standard input.

    A g++ driver that is killed leaves its compiler proper running, so the tool gets a session of its own and the
    whole group is killed. Raises MissingDependencyError, naming the package, when the tool is not installed.
    """
    tool = Path(arguments[0]).name
    try:
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        package = PACKAGES.get(tool, tool)
        raise MissingDependencyError(
            f"{tool} is needed to profile a C++ candidate and was not found; install it with "
            f"`apt install {package}` (or `conda install {package}`)"
        ) from error
    limit = (MEMORY_BYTES, MEMORY_BYTES)
    with contextlib.suppress(ProcessLookupError):  # it may have ended already
        resource.prlimit(process.pid, resource.RLIMIT_AS, limit)
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
        return Answer(process.returncode, stdout, stderr)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        return Answer(None, stdout, stderr)
