"""From a name to a checked `records.Problem`. Nothing of the problem's file runs in the caller's process.

A problem is one self-contained Python file in KernelBench's format:

    class Model(torch.nn.Module)   the reference, in the mode its constructor leaves it in (train)
    get_init_inputs() -> list      arguments of Model
    get_inputs() -> list           arguments of Model.forward, new random ones at each call, on the CPU

Sizes are module globals that `get_inputs` reads when it is called. Four names are optional:

    CASES = {"tuned": {"batch": 1024}, "small": {"batch": 7}}
        Input settings: overrides of module globals, set before get_init_inputs and get_inputs are called.
        The first is the one that is tuned and equals the defaults; the others are held out.
    REFERENCES = {"library": Library}
        Other honest PyTorch forms of the same function: classes with Model's constructor and forward, which
        draw the same weights under the same seed and agree with Model.
    TOLERANCE = 2.0       scales the rule set's own tolerance
    BACKWARD = True       the backward pass belongs to the problem

The forward is a function of its arguments and weights. It may not change its inputs (return the new value
instead), nor return a view of one; inputs do not share memory and have the same shapes for every seed.
The shapes of outputs may depend on the data. Outputs are tensors of any dtype, nested in tuples, lists and dicts.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kernelevolve import errors, records, workers
from kernelevolve.problems.suites import FolderSuite, KernelBenchSuite, Suite, find, names
from kernelevolve.workers.pool import scratch


def load(ref: str | Path, *, timeout_s: float = 120.0) -> records.Problem:
    """Find a problem, run its checks in a worker and return it.

    Args:
        ref: "suite/name" ("cpu/rms_norm", "kernelbench/1/23"), a path to a `.py` file, "folder:PATH/name", or
            "kernelbench:PATH/LEVEL/ID" for a checkout that KERNELBENCH_ROOT does not name.
        timeout_s: Limit on import and checks together.

    Raises:
        ProblemError: The file cannot be used; the message holds the file, the line and what was expected.
        UnknownNameError: No such suite.
        SettingError: The suite's files are not on this machine.
    """
    found = _find(ref)
    try:
        source = found["path"].read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.ProblemError(f"{found['path']} cannot be read: {error}; expected Python in UTF-8") from error
    folder = scratch("problem")
    try:
        facts = workers.call(
            "kernelevolve.problems.inspect:inspect",
            {"source": source, "path": str(found["path"]), "timeout_s": timeout_s},
            timeout_s=timeout_s + 10,  # the worker's own alarm names the line; this is for code that holds it off
            cwd=folder,
            limits={"RLIMIT_DATA": _memory_limit_bytes()},
        )
    except errors.WorkerError as error:
        raise errors.ProblemError(
            f"{found['path']}: the process that imports and checks this file ended or hung; expected that within "
            f"{timeout_s:g} s. Look for endless work, a crash or too little memory.\n{error}"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return records.from_dict(records.Problem, {**facts, **found, "path": str(found["path"]), "source": source})


def suite(name: str) -> list[str]:
    """Ids of a suite's problems. Only folder names are read."""
    return find(name).ids()


def suites() -> list[str]:
    """Names of the suites: built-in ones and those of installed packages."""
    return names()


def _find(ref: str | Path) -> dict[str, Any]:
    """Where the problem is: its id, suite, suite_version and path."""
    text = str(ref)
    if isinstance(ref, Path) or text.endswith(".py"):
        path = Path(text).expanduser().resolve()
        if not path.is_file():
            raise errors.ProblemError(f"{path}: no such file")
        return {"id": f"file/{path.stem}", "suite": "file", "suite_version": "", "path": path}
    head, _, rest = text.partition("/")
    chosen: Suite
    if text.startswith("folder:"):
        folder, _, name = text.removeprefix("folder:").rpartition("/")
        chosen = FolderSuite(Path(folder or ".").expanduser())
    elif text.startswith("kernelbench:"):
        root, _, number = text.removeprefix("kernelbench:").rpartition("/")
        root, _, level = root.rpartition("/")
        chosen, name = KernelBenchSuite(Path(root or ".")), f"{level}/{number}"
    elif rest:
        chosen, name = find(head), rest
    else:
        raise errors.ProblemError(
            f"{text!r} names no problem; expected SUITE/NAME (suites: {', '.join(suites())}), a path that ends in .py, "
            "or folder:PATH/NAME"
        )
    path = chosen.path(name).resolve()
    return {"id": f"{chosen.name}/{name}", "suite": chosen.name, "suite_version": chosen.version(), "path": path}


def _memory_limit_bytes() -> int:
    """Four fifths of what is free now: an allocation past it fails in the worker, with a message that has the size."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 * 4 // 5
    return 8 * 2**30
