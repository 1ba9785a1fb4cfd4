"""KernelEvolve: search for faster kernels for PyTorch operators, and keep the evidence."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelevolve.problems.load import load as problem
    from kernelevolve.search.policies import Greedy, OneShot, Policy, Random
    from kernelevolve.search.stop import BoundReached, Stall, Steps, Target, WallTime
    from kernelevolve.settings import Settings
    from kernelevolve.store.workspace import Workspace
    from kernelevolve.study import Study
    from kernelevolve.testing.self_test import self_test

__version__ = "0.1.0.dev0"

# Loaded on first use, so that `import kernelevolve` is instant and needs none of the heavy packages.
_PUBLIC = {
    "problem": "kernelevolve.problems.load:load",
    "Study": "kernelevolve.study:Study",
    "Settings": "kernelevolve.settings:Settings",
    "Workspace": "kernelevolve.store.workspace:Workspace",
    "Policy": "kernelevolve.search.policies:Policy",
    "Greedy": "kernelevolve.search.policies:Greedy",
    "OneShot": "kernelevolve.search.policies:OneShot",
    "Random": "kernelevolve.search.policies:Random",
    "Steps": "kernelevolve.search.stop:Steps",
    "WallTime": "kernelevolve.search.stop:WallTime",
    "Target": "kernelevolve.search.stop:Target",
    "Stall": "kernelevolve.search.stop:Stall",
    "BoundReached": "kernelevolve.search.stop:BoundReached",
    "self_test": "kernelevolve.testing.self_test:self_test",
}

__all__ = [
    "BoundReached", "Greedy", "OneShot", "Policy", "Random", "Settings", "Stall", "Steps", "Study", "Target",
    "WallTime", "Workspace", "__version__", "problem", "self_test",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kernelevolve' has no attribute {name!r}")
    module, _, attribute = _PUBLIC[name].partition(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
