"""From a problem to the ATen calls of its forward, as plain JSON. The problem's file runs in a worker only."""

from __future__ import annotations

import shutil
from typing import Any

from kernelevolve import errors, workers
from kernelevolve.records import Problem
from kernelevolve.workers.pool import scratch


def capture(problem: Problem, *, timeout_s: float = 120.0) -> dict[str, Any]:
    """The calls that `Model.forward` makes, by torch.export with the shapes of the tuned case.

    Returns:
        arguments: names of forward's parameters.
        fixed: arguments that are no tensors -> the value that the graph holds for.
        inputs: value name -> how to reach it ("x", "xs[0]"), in order.
        parameters: value name -> attribute path under the model ("norm.weight").
        constants: value name -> nested numbers of small tensors made inside forward.
        values: value name -> {"shape", "dtype", "strides"}; a size known only at run time is a string such as "u0".
        nodes: {"name", "target", "args", "outputs"} in order. Arguments are named as in the operator's schema, with
            defaults filled in: {"ref": value}, {"sym": "u0"}, {"dtype": "float32"}, numbers, strings, lists, null.
        outputs: nested {"tuple": […]}, {"list": […]}, {"dict": {…}} of {"ref": value} or constants.

    Raises:
        NotCoveredError: torch.export cannot follow this forward; the message holds its reason.
        WorkerError: The worker died or passed `timeout_s`.
    """
    folder = scratch("capture")
    try:
        answer: dict[str, Any] = workers.call(
            "kernelevolve.operators.template.capture_worker:capture",
            {"source": problem.source, "title": problem.title},
            timeout_s=timeout_s,
            cwd=folder,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if "error" in answer:
        raise errors.NotCoveredError(
            f"{problem.id}: torch.export cannot follow Model.forward, so the template operator has no graph: "
            f"{answer['error']}. Use another operator, or write the forward without data-dependent Python control flow."
        )
    return answer
