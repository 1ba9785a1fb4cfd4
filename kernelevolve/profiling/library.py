"""Which parts of a candidate stay in PyTorch: the operator calls in its module, read from the syntax tree, never run.

Allocation and views cost nothing to speak of and do not count. Calls in a constructor or at import run once, not per
call, and do not count either. What hides behind `getattr` or another file is not seen.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterator
from typing import Any

from kernelevolve.profiling.base import Profiler, Subject, missing

_FREE = (
    "empty empty_like empty_strided new_empty zeros zeros_like new_zeros tensor as_tensor from_numpy Size device dtype "
    "view reshape contiguous data_ptr size stride dim numel expand expand_as squeeze unsqueeze transpose permute t T "
    "flatten unflatten detach narrow select is_contiguous requires_grad_ no_grad inference_mode get_num_threads "
    "is_tensor Tensor element_size storage_offset is_floating_point append items keys values get format join"
)
FREE = frozenset(_FREE.split())
_METHODS = (
    "mul sub div matmul mm bmm addmm linear sum mean var std max min amax amin softmax log_softmax exp log sqrt rsqrt "
    "pow tanh sigmoid relu gelu silu clamp where masked_fill cumsum cumprod argsort topk argmax argmin gather scatter "
    "scatter_add index_select index_add norm abs sin cos einsum conv1d conv2d copy_ to float half double long int clone"
)
METHODS = frozenset(_METHODS.split())
"""Tensor methods that compute or copy; other methods of unknown objects are not taken for operators."""
PER_IMPORT = frozenset(("__init__", "extra_repr", "get_inputs", "get_init_inputs"))


def operator_calls(module: str) -> dict[str, int] | None:
    """PyTorch operators that the module's functions call, with the number of places; None when it does not parse."""
    try:
        tree = ast.parse(module)
    except (SyntaxError, ValueError, RecursionError):
        return None
    aliases = {"torch": "torch", **_aliases(tree)}
    others = _imported(tree) - set(aliases)
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    kernels = _assigned_from_ctypes(tree)
    found: collections.Counter[str] = collections.Counter()
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if function.name not in PER_IMPORT:
            found.update(_calls(function, aliases, methods | kernels, others))
    return dict(found)


def _calls(function: ast.FunctionDef, aliases: dict[str, str], own: set[str], others: set[str]) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield "matmul"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, holder = node.func.attr, node.func.value
        root = holder
        while isinstance(root, ast.Attribute):
            root = root.value
        if name in FREE or name in own or (isinstance(root, ast.Name) and root.id in others):
            continue
        if isinstance(root, ast.Name) and root.id in aliases:
            yield f"{aliases[root.id]}.{name}"
        elif isinstance(holder, ast.Name) and holder.id == "self":
            yield f"self.{name}"
        elif name in METHODS:
            yield f"Tensor.{name}"


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Local names of torch's modules: `import torch.nn.functional as F` gives {"F": "torch.nn.functional"}."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in node.names:
                if f"{base}{name.name}".startswith("torch") and name.asname is not None:
                    found[name.asname] = f"{base}{name.name}"
                elif base.startswith("torch."):
                    found[name.name] = f"{base}{name.name}"
                elif base == "torch." and name.name in ("nn", "functional"):
                    found[name.name] = f"torch.{name.name}"
    return found


def _imported(tree: ast.Module) -> set[str]:
    """Local names of everything imported."""
    imports = (node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    return {(name.asname or name.name).partition(".")[0] for node in imports for name in node.names}


def _assigned_from_ctypes(tree: ast.Module) -> set[str]:
    """Attributes of self that hold the candidate's own functions (`self.kernel = lib.kernel`, `self.f = build()`)."""
    own = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and not _makes_module(node.value):
            own |= {target.attr for target in node.targets if isinstance(target, ast.Attribute)}
    return own


def _makes_module(value: ast.expr) -> bool:
    """Whether an assigned value looks like a PyTorch module: `nn.Linear(…)`, or a list of them."""
    calls = (node.func for node in ast.walk(value) if isinstance(node, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr[:1].isupper() and f.attr != "Parameter" for f in calls)


class Library(Profiler):
    """Calls of PyTorch operators in the candidate's module."""

    name = "library"

    def applies(self, subject: Subject) -> bool:
        """Every candidate that brings kernels of its own; in plain PyTorch everything is a library call."""
        return subject.result.proposal.language != "pytorch"

    def measure(self, subject: Subject) -> dict[str, Any]:
        """Keys: `operators` (name to number of places)."""
        calls = operator_calls(subject.result.proposal.source)
        return missing("the module does not parse") if calls is None else {"operators": calls}
