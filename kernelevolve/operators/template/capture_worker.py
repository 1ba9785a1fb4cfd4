"""Runs in a worker: import the problem, export its model, write the calls down. See `capture.py` for the format."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import operator
import sys
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import sympy
import torch
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

CONSTANT_NUMEL = 4096
"""Tensors made inside forward are written down up to this many elements."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def capture(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Entry point of the worker: the captured graph, or {"error": why not}."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.ERROR)
    module = _import(payload["source"], payload["title"])
    arguments = list(module.get_init_inputs()) if hasattr(module, "get_init_inputs") else []
    model = module.Model(*arguments)
    inputs = tuple(module.get_inputs())
    try:
        program = torch.export.export(model, inputs, strict=False)
        if any(_mutates(node) for node in program.graph.nodes):
            program = program.run_decompositions({})
        return _Writer(program, model, inputs).graph()
    except Exception:
        lines = traceback.format_exc().strip().splitlines()
        return {"error": " ".join(line.strip() for line in lines[-6:] if line.strip())[-1500:]}


def _import(source: str, title: str) -> ModuleType:
    path = Path(f"problem_{title}.py").resolve()
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _mutates(node: torch.fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


class _Writer:
    """Writes one exported program down."""

    def __init__(self, program: torch.export.ExportedProgram, model: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        self.program, self.model, self.inputs = program, model, inputs
        self.nodes = list(program.graph.nodes)
        self.pinned = self._pinned_sizes()
        self.parts: dict[str, dict[int, str]] = {}
        for node in self.nodes:
            if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
                self.parts.setdefault(node.args[0].name, {}).setdefault(node.args[1], node.name)
        self.alias = {
            node.name: self.parts[node.args[0].name][node.args[1]]
            for node in self.nodes if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node)
        }  # fmt: skip

    def graph(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        nodes = []
        for node in self.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and isinstance(value, torch.Tensor):
                values[node.name] = self._spec(value)
            elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
                if isinstance(value, _SYMBOLIC) or value is None or "_assert" in str(node.target):
                    continue
                outputs = self._outputs(node)
                for name, tensor in outputs:
                    values[name] = self._spec(tensor)
                nodes.append({
                    "name": node.name, "target": str(node.target), "args": self._arguments(node),
                    "outputs": [name for name, _ in outputs],
                })  # fmt: skip
            elif (
                node.op == "call_function"
                and isinstance(value, (torch.Tensor, tuple, list))
                and node.target is not operator.getitem
            ):
                raise NotImplementedError(f"a call of {node.target}, which is no ATen operator")
        return {
            "arguments": list(inspect.signature(self.model.forward).parameters),
            "fixed": self._fixed(),
            **self._sources(),
            "values": values,
            "nodes": nodes,
            "outputs": self._structure(),
        }

    def _fixed(self) -> dict[str, Any]:
        """Arguments that are no tensors: the graph holds for these values only."""
        parameters = inspect.signature(self.model.forward).parameters.values()
        found = {p.name: p.default for p in parameters if p.default is not p.empty}
        for path, value in pytree.tree_flatten_with_path((self.inputs, {}))[0]:
            place = list(parameters)[getattr(path[1], "idx")].name + pytree.keystr(path[2:])  # noqa: B009
            found.pop(place, None)
            if not isinstance(value, torch.Tensor):
                found[place] = value
        plain = (bool, int, float, str, type(None))
        return {place: value for place, value in found.items() if isinstance(value, plain)}

    def _pinned_sizes(self) -> dict[Any, Any]:
        """Run-time sizes that a later assertion fixes."""
        found = {}
        for node in self.nodes:
            value = node.meta.get("val")
            if node.op == "call_function" and isinstance(value, torch.SymBool):
                claim = value.node.expr
                if isinstance(claim, sympy.Eq) and any(
                    u.target is torch.ops.aten._assert_scalar.default for u in node.users
                ):
                    left, right = claim.args
                    if left.is_Symbol and right.is_Integer:
                        found[left] = right
                    elif right.is_Symbol and left.is_Integer:
                        found[right] = left
        return found

    def _size(self, size: Any) -> int | str:
        if isinstance(size, int):
            return size
        expr = sympy.sympify(size.node.expr).xreplace(self.pinned)
        return int(expr) if expr.is_Integer else str(expr)

    def _spec(self, tensor: torch.Tensor) -> dict[str, Any]:
        return {
            "shape": [self._size(n) for n in tensor.shape], "dtype": _dtype(tensor.dtype),
            "strides": [self._size(n) for n in tensor.stride()],
        }  # fmt: skip

    def _outputs(self, node: torch.fx.Node) -> list[tuple[str, torch.Tensor]]:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            return [(node.name, value)]
        names = self.parts.get(node.name, {})
        return [(names.get(i, f"{node.name}_{i}"), v) for i, v in enumerate(value) if isinstance(v, torch.Tensor)]

    def _arguments(self, node: torch.fx.Node) -> dict[str, Any]:
        assert isinstance(node.target, torch._ops.OpOverload)
        found = {}
        for i, argument in enumerate(node.target._schema.arguments):
            if i < len(node.args):
                given = node.args[i]
            else:
                given = node.kwargs.get(argument.name, argument.default_value)
            found[argument.name] = self._argument(given)
        return found

    def _argument(self, given: Any) -> Any:
        if isinstance(given, torch.fx.Node):
            value = given.meta.get("val")
            if isinstance(value, _SYMBOLIC):
                size = self._size(value)
                return size if isinstance(size, int) else {"sym": size}
            if isinstance(value, (int, float, bool)):
                return value
            return {"ref": self.alias.get(given.name, given.name)}
        if isinstance(given, (list, tuple)):
            return [self._argument(x) for x in given]
        if isinstance(given, torch.dtype):
            return {"dtype": _dtype(given)}
        if given is None or isinstance(given, (bool, int, float, str)):
            return given
        return {"other": str(given)}

    def _sources(self) -> dict[str, Any]:
        """Where placeholders come from."""
        paths, _ = pytree.tree_flatten_with_path((self.inputs, {}))
        names = list(inspect.signature(self.model.forward).parameters)
        reach = [names[getattr(path[1], "idx")] + pytree.keystr(path[2:]) for path, _ in paths]  # noqa: B009
        inputs: dict[str, str] = {}
        parameters: dict[str, str] = {}
        constants: dict[str, Any] = {}
        users = 0
        for spec in self.program.graph_signature.input_specs:
            name = spec.arg.name
            if spec.kind is InputKind.USER_INPUT:
                if isinstance(self.inputs and paths[users][1], torch.Tensor):
                    inputs[name] = reach[users]
                users += 1
            elif spec.target is not None and self._attribute(spec.target) is not None:
                parameters[name] = spec.target
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                tensor = self.program.constants[str(spec.target)]
                if tensor.numel() > CONSTANT_NUMEL:
                    raise NotImplementedError(f"a tensor of {tensor.numel()} elements written inside forward")
                constants[name] = {"values": tensor.tolist()}
            else:
                raise NotImplementedError(f"an input of kind {spec.kind}")
        return {"inputs": inputs, "parameters": parameters, "constants": constants}

    def _attribute(self, path: str) -> Any:
        found: Any = self.model
        for part in path.split("."):
            found = getattr(found, part, None)
        return found if isinstance(found, torch.Tensor) else None

    def _structure(self) -> Any:
        """What forward returns, nested as it returns it."""
        node = next(n for n in self.nodes if n.op == "output")
        kinds = [spec.kind.name for spec in self.program.graph_signature.output_specs]
        leaves = [
            self._argument(x) for x, kind in zip(node.args[0], kinds, strict=True) if kind.startswith("USER_OUTPUT")
        ]
        signature = self.program.call_spec.out_spec
        assert signature is not None
        return _nested(pytree.tree_unflatten(leaves, signature))


def _nested(value: Any) -> Any:
    if isinstance(value, dict) and set(value) != {"ref"}:
        return {"dict": {k: _nested(v) for k, v in value.items()}}
    if isinstance(value, (tuple, list)):
        return {"tuple" if isinstance(value, tuple) else "list": [_nested(v) for v in value]}
    return value


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
