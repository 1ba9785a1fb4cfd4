"""Builds the small graph from captured calls. What rules use to read arguments and add operations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kernelevolve.operators.template import expr as ex
from kernelevolve.operators.template.affine import strides_of
from kernelevolve.operators.template.expr import Expr
from kernelevolve.operators.template.graph import Dim, Graph, Op, Value

Rule = Callable[["Builder", "Call"], "str | tuple[str, ...] | None"]
RULES: dict[str, Rule] = {}
"""By ATen name, with overload ("aten.max.dim") or without ("aten.gelu")."""


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"two rules for {name}")
            RULES[name] = rule
        return rule

    return register


class Call:
    """One captured call. `call["dim"]` is an argument by its schema name; a tensor is given as its value's name."""

    def __init__(self, node: Mapping[str, Any], builder: Builder) -> None:
        self.name: str = node["name"]
        self.target: str = node["target"]
        self.outputs: tuple[str, ...] = tuple(node["outputs"])
        self.raw: Mapping[str, Any] = node["args"]
        self._builder = builder

    def __getitem__(self, name: str) -> Any:
        return _plain(self.raw[name])

    def get(self, name: str, default: Any = None) -> Any:
        """An argument, or `default` when it is absent or None."""
        value = _plain(self.raw.get(name))
        return default if value is None else value

    def is_tensor(self, name: str) -> bool:
        """Whether the argument is a tensor."""
        return isinstance(self.raw.get(name), dict) and "ref" in self.raw[name]

    def has_symbols(self) -> bool:
        """Whether some argument is a size known only at run time."""
        return any(_has(v, "sym") for v in self.raw.values())

    @property
    def shape(self) -> tuple[Dim, ...]:
        """Shape of the (first) output."""
        return self._builder.shape(self.outputs[0])

    @property
    def dtype(self) -> str:
        """Dtype of the (first) output."""
        return self._builder.dtype(self.outputs[0])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        (item,) = value.values()
        return item
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _has(value: Any, kind: str) -> bool:
    return kind in value if isinstance(value, dict) else isinstance(value, list) and any(_has(v, kind) for v in value)


class Builder:
    """A graph under construction. Every method that adds an operation answers with the name of its value."""

    def __init__(self, captured: Mapping[str, Any]) -> None:
        self.captured = captured
        self.values: dict[str, Value] = {}
        self.ops: list[Op] = []
        self.rename: dict[str, str] = {}
        self.scalars: dict[str, Expr] = {}
        """Tensors of one element that are known now; read as numbers."""
        for name in (*captured["inputs"], *captured["parameters"], *captured["constants"]):
            self.values[name] = self.spec(name)
        for name, constant in captured["constants"].items():
            flat = _flatten(constant["values"])
            if len(flat) == 1:
                self.scalars[name] = ex.const(flat[0], self.values[name].dtype)

    def spec(self, name: str) -> Value:
        """Shape and dtype that the capture saw."""
        seen = self.captured["values"][name]
        return Value(name, tuple(seen["shape"]), seen["dtype"])

    def actual(self, name: str) -> str:
        """The value that stands for a captured name: another one where an operator changed nothing."""
        while name in self.rename:
            name = self.rename[name]
        return name

    def shape(self, name: str) -> tuple[Dim, ...]:
        """Shape of a value, or of what the capture saw for one that does not exist yet."""
        name = self.actual(name)
        return self.values[name].shape if name in self.values else self.spec(name).shape

    def sizes(self, name: str) -> tuple[int, ...]:
        """Shape of a value all of whose sizes are known. Raises NotLoweredError otherwise."""
        shape = self.shape(name)
        if any(isinstance(n, str) for n in shape):
            raise NotLoweredError(f"{name} has a size known only at run time")
        return tuple(int(n) for n in shape)

    def dtype(self, name: str) -> str:
        """Dtype of a value, or of what the capture saw."""
        name = self.actual(name)
        return self.values[name].dtype if name in self.values else self.spec(name).dtype

    def arg(self, name: str) -> Expr:
        """The element of a value at the current position, by broadcast."""
        name = self.actual(name)
        return self.scalars.get(name) or ex.arg(name, self.values[name].dtype)

    def load(self, name: str, *position: Expr) -> Expr:
        """The element of a value at an explicit position."""
        name = self.actual(name)
        return ex.load(name, self.values[name].dtype, *position)

    def fresh(self, stem: str) -> str:
        """A value name not used yet."""
        name, k = stem, 1
        while name in self.values or name in self.captured["values"]:
            name, k = f"{stem}_{k}", k + 1
        return name

    def add(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[Value], attrs: Mapping[str, Any], origin: str = ""
    ) -> str:
        """Add an operation of any kind."""
        names = tuple(self.actual(n) for n in inputs)
        for value in outputs:
            strides_of(value.shape)  # a size known only at run time must come first
            self.values[value.name] = value
        self.ops.append(Op(kind, names, tuple(v.name for v in outputs), dict(attrs), origin))
        return outputs[0].name

    def pointwise(self, name: str, body: Expr, shape: Sequence[Dim], origin: str = "") -> str:
        """A value of which every element is `body`. `name` may be a captured name or one from `fresh`."""
        body = ex.substitute(body, lambda e: self.scalars.get(e.value) if e.op == "arg" else None)
        return self.add("pointwise", ex.reads(body), [Value(name, tuple(shape), body.dtype)], {"expr": body}, origin)

    def reduce(self, name: str, op: str, x: str, dims: Sequence[int], dtype: str = "", origin: str = "") -> str:
        """A reduction that keeps its dimensions as size 1."""
        x = self.materialised(x)
        shape = tuple(1 if d in dims else n for d, n in enumerate(self.shape(x)))
        value = Value(name, shape, dtype or self.dtype(x))
        return self.add("reduce", [x], [value], {"op": op, "dims": tuple(sorted(dims))}, origin)

    def view(
        self, name: str, x: str, shape: Sequence[Dim], strides: Sequence[int], offset: int = 0, origin: str = ""
    ) -> str:
        """A view of contiguous `x`."""
        x = self.materialised(x)
        attrs = {"offset": offset, "strides": tuple(strides)}
        return self.add("view", [x], [Value(name, tuple(shape), self.dtype(x))], attrs, origin)

    def reshape(self, name: str, x: str, shape: Sequence[Dim], origin: str = "") -> str:
        """The same elements in the same order."""
        return self.view(name, x, shape, strides_of(shape), 0, origin)

    def same(self, name: str, x: str) -> str:
        """Let captured `name` be `x` itself."""
        self.rename[name] = self.actual(x)
        return self.actual(x)

    def materialised(self, x: str) -> str:
        """`x` as a value even if it is a known number."""
        x = self.actual(x)
        if x in self.scalars and x not in self.captured["constants"]:
            number = self.scalars.pop(x)
            self.add("pointwise", (), [Value(x, self.spec(x).shape, number.dtype)], {"expr": number})
        return x

    def const_like(self, number: float | int | bool, dtype: str) -> Expr:
        """A number of a dtype."""
        return ex.const(number, dtype)


class NotLoweredError(Exception):
    """Raised inside a rule: this call stays in PyTorch."""


def _is_contiguous(seen: Mapping[str, Any]) -> bool:
    pairs = zip(seen["shape"], seen["strides"], strides_of(seen["shape"]), strict=True)
    return all(n == 1 or given == own for n, given, own in pairs)


def _flatten(values: Any) -> list[Any]:
    return [x for v in values for x in _flatten(v)] if isinstance(values, list) else [values]


def lower(captured: Mapping[str, Any], keep: Collection[str] = ()) -> Graph:
    """The small graph of a captured forward; dead operations are dropped.

    Calls that no rule takes, and those named in `keep`, stay in PyTorch as `opaque`.
    """
    b = Builder(captured)
    calls: dict[str, str] = {}
    for node in captured["nodes"]:
        call, before = Call(node, b), len(b.ops)
        if call.name in keep or not _apply(b, call):
            _keep(b, call)
        calls.update({op.name: call.name for op in b.ops[before:]})
    outputs = _outputs(b, captured["outputs"])
    graph = Graph(
        values=b.values,
        inputs=tuple(captured["inputs"]),
        parameters=dict(captured["parameters"]),
        ops=_alive(b, outputs),
        outputs=outputs,
        argument_names=tuple(captured["arguments"]),
        access=dict(captured["inputs"]),
        constants={n: c["values"] for n, c in captured["constants"].items()},
        calls=calls,
        strided=frozenset(
            name
            for name in (*captured["inputs"], *captured["parameters"])
            if not _is_contiguous(captured["values"][name])
        ),
        fixed=dict(captured.get("fixed", {})),
    )
    return graph


def _apply(b: Builder, call: Call) -> bool:
    rule = RULES.get(call.target) or RULES.get(call.target.rpartition(".")[0])
    if rule is None:
        return False
    before, values, names = len(b.ops), dict(b.values), dict(b.rename)
    try:
        answer = rule(b, call)
        if answer is None:
            raise NotLoweredError(call.target)
        for captured, name in zip(call.outputs, (answer,) if isinstance(answer, str) else answer, strict=True):
            if name != captured and b.actual(captured) != name:
                b.rename[captured] = name
            seen, made = b.spec(captured), b.values.get(name)
            if made is not None and (made.shape, made.dtype) != (seen.shape, seen.dtype):
                raise NotLoweredError(f"{call.target} gives {seen}, its rule {made}")
    except (NotLoweredError, ValueError, OverflowError):
        del b.ops[before:]
        b.values, b.rename = values, names
        return False
    return True


def _keep(b: Builder, call: Call) -> None:
    """Keep a call in PyTorch."""
    inputs: list[str] = []

    def text(value: Any) -> str:
        if isinstance(value, dict) and "ref" in value:
            name = b.materialised(value["ref"])
            if name not in inputs:
                inputs.append(name)
            return f"{{{inputs.index(name)}}}"
        if isinstance(value, dict) and "sym" in value:
            return str(value["sym"])
        if isinstance(value, dict) and "dtype" in value:
            return f"torch.{value['dtype']}"
        if isinstance(value, dict):
            return repr(next(iter(value.values())))
        if isinstance(value, list):
            return f"[{', '.join(map(text, value))}]"
        return f'float("{value}")' if isinstance(value, float) and value - value != 0 else repr(value)

    given = {
        n: v for n, v in call.raw.items() if not (v is None and n in ("layout", "device", "pin_memory", "generator"))
    }
    arguments = ", ".join(f"{'input' if n == 'self' else n}={text(v)}" for n, v in given.items())
    if "self" in given:
        arguments = ", ".join([text(given["self"]), *(f"{n}={text(v)}" for n, v in given.items() if n != "self")])
    outputs = []
    for name in call.outputs:
        value = b.spec(name)
        b.values[name] = value
        outputs.append(value)
    attrs = {"call": f"torch.ops.{call.target}({arguments})"}
    b.ops.append(Op("opaque", tuple(inputs), tuple(v.name for v in outputs), attrs, call.target))


def _outputs(b: Builder, structure: Any) -> Any:
    if isinstance(structure, dict) and "ref" in structure:
        return b.materialised(structure["ref"])
    if isinstance(structure, dict):
        ((kind, items),) = structure.items()
        if kind == "dict":
            return {kind: {k: _outputs(b, v) for k, v in items.items()}}
        return {kind: [_outputs(b, v) for v in items]}
    return {"const": structure}


def _alive(b: Builder, outputs: Any) -> tuple[Op, ...]:
    probe = Graph(b.values, (), {}, (), outputs)
    needed, kept = set(probe.output_names()), []
    for op in reversed(b.ops):
        if needed & set(op.outputs):
            needed.update(op.inputs)
            kept.append(op)
    return tuple(reversed(kept))
