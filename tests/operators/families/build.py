"""Build one kernel of a small graph with g++ and run it on torch tensors."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kernelevolve.operators.template import fuse
from kernelevolve.operators.template.cpp import prelude
from kernelevolve.operators.template.graph import Graph, Op, Value
from kernelevolve.operators.template.template import Kernel, KernelSource, Template

FLAGS = (
    "-O3", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math", "-fopenmp",
    "-std=c++17", "-shared", "-fPIC",
)  # fmt: skip
_FOLDER = tempfile.TemporaryDirectory(prefix="families")
FOLDER = Path(_FOLDER.name)


def graph(ops: list[Op], outputs: Any, **shapes: tuple[tuple[int, ...], str]) -> Graph:
    """A graph from operations; `shapes` gives every value's shape and dtype; those no operation makes are inputs."""
    values = {name: Value(name, shape, dtype) for name, (shape, dtype) in shapes.items()}
    made = {out for op in ops for out in op.outputs}
    return Graph(values, tuple(n for n in values if n not in made), {}, tuple(ops), outputs)


def kernel(g: Graph, template: Template, **params: Any) -> Kernel:
    """All operations of the graph as one kernel."""
    ops = tuple(op.name for op in g.ops if op.kind != "view")
    assert template.covers(g, ops), f"{template.name} does not cover {ops}"
    choices = {p.name: p.default for p in template.parameters(g, ops, {"vector_lanes_fp32": 16})}
    assert set(params) <= set(choices), f"{template.name} has no {set(params) - set(choices)}"
    plan = {"ops": ops, "template": template.name, "params": {**choices, **params}}
    return fuse.kernels(g, {"kernels": [plan]})[0]


def compiled(text: str) -> ctypes.CDLL:
    """The shared library of a source, built once."""
    path = FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not path.exists():
        source = path.with_suffix(".cpp")
        source.write_text(text)
        done = subprocess.run(
            ["g++", *FLAGS, str(source), "-o", str(path)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[:3000] + "\n" + text
    return ctypes.CDLL(str(path))


def whole(source: KernelSource) -> str:
    """The text of a module with this kernel alone."""
    text = source.counter + "\n\n" + source.code
    return "#include <algorithm>\n#include <vector>\n#include <omp.h>\n" + prelude.prelude(text) + text


def pack(tensors: Mapping[str, torch.Tensor], source: KernelSource, k: Kernel) -> list[Any]:
    """The arguments of a call."""
    found: list[Any] = []
    for name in source.arguments:
        if name.startswith("size:"):
            found.append(ctypes.c_int64(int(tensors[name])))
        else:
            found.append(ctypes.c_void_p(tensors[name].data_ptr()))
    return found


def scratch(source: KernelSource) -> dict[str, torch.Tensor]:
    """Scratch memory, poisoned and aligned."""
    return {f"scratch:{n}": torch.full((b + 64,), 0x7F, dtype=torch.uint8)[:b] for n, b in source.scratch.items()}


def run(g: Graph, template: Template, tensors: Mapping[str, torch.Tensor], **params: Any) -> dict[str, torch.Tensor]:
    """The kernel's outputs by name; sizes known only at run time come from the kernel's own count."""
    k = kernel(g, template, **params)
    source = template.emit(g, k)
    library = compiled(whole(source))
    given = {n: t.contiguous() for n, t in tensors.items()} | scratch(source)
    sizes: dict[str, int] = {}
    if source.runtime_size:
        count = getattr(library, f"{k.name}_count")
        count.restype = ctypes.c_int64
        without = [a for a in source.arguments if a not in k.outputs and a != f"size:{source.runtime_size}"]
        fake = KernelSource("", tuple(without))
        sizes[source.runtime_size] = count(*pack(given, fake, k))
        given[f"size:{source.runtime_size}"] = torch.tensor(sizes[source.runtime_size])
    out = {}
    for name in k.outputs:
        value = g.values[name]
        shape = [sizes[n] if isinstance(n, str) else n for n in value.shape]
        dtype = getattr(torch, value.dtype)
        out[name] = torch.full(shape, 77, dtype=dtype) if dtype is not torch.bool else torch.ones(shape, dtype=dtype)
    getattr(library, k.name)(*pack(given | out, source, k))
    return out
