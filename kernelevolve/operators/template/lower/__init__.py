"""From captured ATen calls to the small graph: one function per operator, registered by name.

A rule has the operator's name with overload ("aten.max.dim") or without ("aten.gelu") and is found in any file of
this folder. It takes the builder and the call, adds operations, and answers with the name of its value (a tuple for
several). It answers None when it cannot lower this call, for example an argument it does not know: the call then
stays in PyTorch as `opaque`, as a call without a rule does.

    @lowers("aten.relu")
    def relu(b: Builder, call: Call) -> str | None:
        x = call["self"]
        return b.pointwise(call.name, expr.call("max", b.arg(x), b.zero(x)), b.shape(x), origin=call.target)
"""

from __future__ import annotations

import importlib
import pkgutil

from kernelevolve.operators.template.lower.builder import RULES, Builder, Call, Rule, lower, lowers

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["RULES", "Builder", "Call", "Rule", "lower", "lowers"]
