"""From a genome to one Python module with `ModelNew`, which builds its own C++ and runs without this package."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from kernelevolve.operators.template import cpp, problem_source
from kernelevolve.operators.template.affine import strides_of
from kernelevolve.operators.template.cpp.dialect import STORAGE, identifier
from kernelevolve.operators.template.cpp.prelude import prelude
from kernelevolve.operators.template.fuse import base_of, is_reshape, kernels, returned
from kernelevolve.operators.template.graph import Dim, Graph, Op
from kernelevolve.operators.template.template import Kernel, KernelSource

OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "vector_bits": (512, 256),
    "optimise": ("-O3", "-O2"),
    "unroll": (False, True),
    "threads": (0, 1, 2, 4, 8),
}
"""Decisions about a whole module, the first thought of first. threads: 0 is as many as torch uses."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What forward does next: kernels in one native call, or one operation that stays in PyTorch."""

    kernels: tuple[Kernel, ...] = ()
    op: Op | None = None


@dataclasses.dataclass(frozen=True)
class Module:
    """A written module."""

    source: str
    own_kernels: int
    """Kernels that one call of forward launches."""
    in_pytorch: tuple[str, ...]
    """ATen operators that stay in PyTorch."""


def write(problem: str, title: str, graph: Graph, genome: Mapping[str, Any]) -> Module:
    """The module of a genome.

    Args:
        problem: Source of the problem's file.
        title: Name of the problem, for the header.
        graph: What `lower` made of it.
        genome: See `template.py`.
    """
    return _Writer(problem, title, graph, genome).module()


def steps(graph: Graph, found: Sequence[Kernel]) -> tuple[Step, ...]:
    """Kernels and operations left in PyTorch in an order that works, neighbouring kernels together."""
    made = set(graph.inputs) | set(graph.parameters) | set(graph.constants)
    covered = {name for k in found for name in k.ops}
    left: list[Kernel | Op] = [*found, *(op for op in graph.ops if op.kind != "view" and op.name not in covered)]
    result: list[Step] = []
    while left:
        ready = [item for item in left if all(base_of(graph, n) in made for n in item.inputs)]
        if not ready:
            raise ValueError("kernels wait for operations that wait for them")
        native = [item for item in ready if isinstance(item, Kernel)]
        item = native[0] if native else ready[0]
        left.remove(item)
        made.update(item.outputs)
        if isinstance(item, Op):
            result.append(Step(op=item))
        elif result and result[-1].kernels and not _counts(graph, (*result[-1].kernels, item)):
            result[-1] = Step((*result[-1].kernels, item))
        else:
            result.append(Step((item,)))
    return tuple(result)


def _counts(graph: Graph, found: Sequence[Kernel]) -> bool:
    """Whether some size among them is known only at run time, so that Python has to allocate in between."""
    return any(isinstance(n, str) for k in found for name in (*k.inputs, *k.outputs) for n in graph.values[name].shape)


class _Writer:
    def __init__(self, problem: str, title: str, graph: Graph, genome: Mapping[str, Any]) -> None:
        self.problem, self.title, self.graph, self.genome = problem, title, graph, genome
        self.options = {name: choices[0] for name, choices in OPTIONS.items()} | dict(genome.get("options", {}))
        self.kernels = kernels(graph, genome)
        self.steps = steps(graph, self.kernels)
        self.sources = {k.name: cpp.get(k.template).emit(graph, k) for k in self.kernels}
        self.kept = returned(graph)
        self.functions: list[tuple[str, int, str, str]] = []
        """Of each native function: name, number of pointers, number of sizes as ctypes names, result."""
        self.code: list[str] = []
        self.known_sizes: dict[str, str] = {}

    def module(self) -> Module:
        body = self._forward()
        code = self._cpp()
        in_pytorch = tuple(dict.fromkeys(s.op.origin for s in self.steps if s.op is not None))
        model = problem_source.rewrite(self.problem, textwrap.indent(body, "    "))
        source = "\n".join([
            f'"""{self._header(in_pytorch)}"""\n', _IMPORTS, model.imports, f"CPP_SOURCE = r'''{code}'''\n",
            f"FLAGS = {self._flags()!r}\n".replace("'", '"'), _BUILD, self._bindings(), *self._constants(), model.rest,
        ])  # fmt: skip
        return Module(_tidy(source), len(self.kernels), in_pytorch)

    def _flags(self) -> list[str]:
        o = self.options
        unroll = ["-funroll-loops"] if o["unroll"] else []
        return [
            o["optimise"],
            *(["-ftree-vectorize"] if o["optimise"] == "-O2" else []),
            *unroll,
            "-march=native",
            f"-mprefer-vector-width={o['vector_bits']}",
            "-fno-math-errno",
            "-fno-trapping-math",
            "-fopenmp",
            "-std=c++17",
            "-shared",
            "-fPIC",
        ]

    def _header(self, in_pytorch: Sequence[str]) -> str:
        count = len(self.kernels)
        lines = [f"{self.title}: {count} C++ kernel{'s' if count != 1 else ''}, written by the template operator.", ""]
        for k in self.kernels:
            for note in self.sources[k.name].notes:
                lines += textwrap.wrap(f"{k.name}: {note}", 110, subsequent_indent="    ")
        if in_pytorch:
            lines += textwrap.wrap(f"In PyTorch: {', '.join(in_pytorch)}.", 110, subsequent_indent="    ")
        o = self.options
        threads = "as many threads as torch" if not o["threads"] else f"{o['threads']} threads"
        lines.append(f"Compiled with {o['optimise']}, vectors of {o['vector_bits']} bits, {threads}.")
        return "\n".join([*lines, ""])

    def _cpp(self) -> str:
        written = [self.sources[k.name] for k in self.kernels]
        body = "\n".join([*(s.counter + s.code for s in written), *self.code])
        if self.options["threads"]:
            body = re.sub(r"(#pragma omp parallel\b[^\n]*)", rf"\1 num_threads({self.options['threads']})", body)
        helpers = prelude(body, [name for s in written for name in s.prelude])
        return f"\n{helpers}\n{body}"

    def _bindings(self) -> str:
        lines = ["LIBRARY = build()"]
        for name, pointers, sizes, result in self.functions:
            kinds = [f"[ctypes.c_void_p] * {pointers}", *([f"[ctypes.c_int64] * {sizes}"] if sizes else [])]
            lines += [
                f"{name} = LIBRARY.{name}",
                f"{name}.argtypes = {' + '.join(kinds)}",
                f"{name}.restype = {result}",
            ]
        return "\n".join(lines) + "\n"

    def _constants(self) -> list[str]:
        used = {n for k in self.kernels for n in k.inputs} | {
            base_of(self.graph, n) for s in self.steps if s.op for n in s.op.inputs
        }
        return [
            f"CONSTANT_{identifier(name)} = torch.tensor({values!r}, dtype=torch.{self.graph.values[name].dtype})\n"
            for name, values in self.graph.constants.items() if name in used
        ]  # fmt: skip

    def _forward(self) -> str:
        g = self.graph
        head = f"def forward({', '.join(['self', *g.argument_names])}):"
        lines = []
        read = {base_of(g, n) for k in self.kernels for n in k.inputs}
        read |= {base_of(g, n) for s in self.steps if s.op is not None for n in s.op.inputs} | self.kept
        for name in g.inputs:
            value, reach = g.values[name], g.access.get(name, name)
            if name not in read:
                continue
            lines += [
                f"if {reach}.shape != {_shape(value.shape)} or {reach}.dtype != torch.{value.dtype}:",
                f'    raise ValueError(f"{reach}: this kernel is written for {value.dtype} of shape '
                f'{_shape(value.shape)}, got {{{reach}.dtype}} of shape {{tuple({reach}.shape)}}")',
                f"{self._variable(name)} = {reach}.contiguous()",
            ]
        for name, path in g.parameters.items():
            if name in read and name in g.strided:
                lines.append(f"{self._variable(name)} = {_attribute(path)}.contiguous()")
        for place, value in g.fixed.items():
            lines += [
                f"if {place} != {value!r}:",
                f'    raise ValueError(f"{place}: this kernel is written for {value!r}, got {{{place}!r}}")',
            ]
        for k, step in enumerate(self.steps):
            lines += self._opaque(step.op) if step.op is not None else self._native(step.kernels, k)
        lines.append(f"return {self._returned(g.outputs)}")
        return "\n".join([head, *(textwrap.indent(line, "    ") for line in lines)]) + "\n"

    def _variable(self, name: str) -> str:
        """The Python expression of a value that exists."""
        if name in self.graph.parameters and name not in self.graph.strided:
            return _attribute(self.graph.parameters[name])
        if name in self.graph.constants:
            return f"CONSTANT_{identifier(name)}"
        text = identifier(name)
        return f"{text}_" if text in ("self", "torch", "ctypes", "work") else text

    def _tensor(self, name: str) -> str:
        """The Python expression of any value, views included."""
        op = self.graph.maker(name)
        if op is None or op.kind != "view":
            return self._variable(name)
        base, value = self._tensor(op.inputs[0]), self.graph.values[name]
        below = self.graph.maker(op.inputs[0])
        if below is not None and below.kind == "view" and not is_reshape(self.graph, below):
            base += ".contiguous()"
        if is_reshape(self.graph, op):
            return (
                f"{base}.view({', '.join(self._size(n) for n in value.shape)})" if value.shape else f"{base}.view(())"
            )
        shape = f"({', '.join(self._size(n) for n in value.shape)},)" if value.shape else "()"
        return f"{base}.as_strided({shape}, {tuple(op.attrs['strides'])}, {op.attrs['offset']})"

    def _size(self, n: Dim) -> str:
        return str(n) if isinstance(n, int) else self.known_sizes.get(n, n)

    def _opaque(self, op: Op | None) -> list[str]:
        assert op is not None
        if op.kind != "opaque":
            raise ValueError(f"{op.name} ({op.kind}) is in no kernel and has no form in PyTorch")
        call = op.attrs["call"].format(*(self._tensor(n) for n in op.inputs))
        names = [self._variable(n) for n in op.outputs]
        lines = [f"{', '.join(names)} = {call}" if len(names) > 1 else f"{names[0]} = {call}"]
        for name in op.outputs:
            if any(name == base_of(self.graph, n) for k in self.kernels for n in k.inputs) or self._is_viewed(name):
                lines.append(f"{self._variable(name)} = {self._variable(name)}.contiguous()")
            for d, n in enumerate(self.graph.values[name].shape):
                if isinstance(n, str) and n not in self.known_sizes:
                    lines.append(f"{n} = {self._variable(name)}.shape[{d}]")
                    self.known_sizes[n] = n
        return lines

    def _is_viewed(self, name: str) -> bool:
        """Whether a view is taken of a value: views count on it being contiguous."""
        return any(user.kind == "view" for user in self.graph.users(name))

    def _native(self, found: Sequence[Kernel], number: int) -> list[str]:
        if len(found) == 1 and not self.sources[found[0].name].scratch:
            return self._single(found[0])
        return self._driver(found, number)

    def _empty(self, name: str) -> str:
        value = self.graph.values[name]
        shape = "".join(f"{self._size(n)}, " for n in value.shape).rstrip(" ")
        shape = shape.rstrip(",") if len(value.shape) > 1 else shape
        return f"{self._variable(name)} = torch.empty(({shape}), dtype=torch.{value.dtype})"

    def _single(self, kernel: Kernel) -> list[str]:
        """One kernel, called directly."""
        source, lines = self.sources[kernel.name], []
        pointers = [a for a in source.arguments if not a.startswith("size:")]
        sizes = [a for a in source.arguments if a.startswith("size:")]
        if source.counter:
            inputs = [a for a in pointers if a not in kernel.outputs]
            given = [f"{self._variable(a)}.data_ptr()" for a in inputs]
            given += [self._size(a.removeprefix("size:")) for a in sizes if a != f"size:{source.runtime_size}"]
            count = len(given) - len(inputs)
            lines.append(f"{source.runtime_size} = {kernel.name}_count({', '.join(given)})")
            self.known_sizes[source.runtime_size] = source.runtime_size
            self.functions.append((f"{kernel.name}_count", len(inputs), count, "ctypes.c_int64"))  # type: ignore[arg-type]
        lines += [self._empty(name) for name in kernel.outputs]
        given = [f"{self._variable(a)}.data_ptr()" for a in pointers] + [
            self._size(a.removeprefix("size:")) for a in sizes
        ]
        if [*pointers, *sizes] != list(source.arguments):
            raise ValueError(f"{kernel.name}: sizes must be the last arguments")
        self.functions.append((kernel.name, len(pointers), len(sizes), "None"))  # type: ignore[arg-type]
        return [*lines, f"{kernel.name}({', '.join(given)})"]

    def _driver(self, found: Sequence[Kernel], number: int) -> list[str]:
        """Several kernels in one native call; values between them live in one buffer."""
        made = [name for k in found for name in k.outputs]
        later = {
            base_of(self.graph, n)
            for s in self.steps
            for item in (*s.kernels, s.op)
            if item is not None and item not in found
            for n in item.inputs
        }
        private = [n for n in made if n not in self.kept and n not in later]
        given = dict.fromkeys(
            a for k in found for a in self.sources[k.name].arguments
            if not a.startswith(("size:", "scratch:")) and a not in private
        )  # fmt: skip
        sizes = dict.fromkeys(a for k in found for a in self.sources[k.name].arguments if a.startswith("size:"))
        offset, declared = 0, []
        for name in private:
            kind = STORAGE[self.graph.values[name].dtype]
            declared.append(f"    {kind}* {identifier(name)} = reinterpret_cast<{kind}*>(work + {offset});")
            offset += _padded((self.graph.values[name].numel or 0) * _BYTES[kind])
        calls = []
        for k in found:
            source, texts = self.sources[k.name], []
            for scratch, size in source.scratch.items():
                declared.append(f"    char* {k.name}_{scratch} = work + {offset};")
                offset += _padded(size)
            for a in source.arguments:
                texts.append(
                    f"{k.name}_{a[8:]}"
                    if a.startswith("scratch:")
                    else a[5:]
                    if a.startswith("size:")
                    else identifier(a)
                )
            calls.append(f"    {k.name}({', '.join(texts)});")
        outputs = [n for n in made if n not in private]
        parameters = [
            f"{'' if a in outputs else 'const '}{STORAGE[self.graph.values[a].dtype]}* {identifier(a)}" for a in given
        ]
        parameters += ["char* work"] if offset else []
        parameters += [f"int64_t {a[5:]}" for a in sizes]
        function = f"forward_{number}"
        self.code.append(
            "\n".join([f'extern "C" void {function}({", ".join(parameters)}) {{', *declared, *calls, "}"]) + "\n"
        )
        lines = [self._empty(name) for name in outputs]
        pointers = [f"{self._variable(a)}.data_ptr()" for a in given]
        if offset:
            lines.append(f"work = torch.empty({offset}, dtype=torch.uint8)")
            pointers.append("work.data_ptr()")
        self.functions.append((function, len(pointers), len(sizes), "None"))  # type: ignore[arg-type]
        return [*lines, f"{function}({', '.join([*pointers, *(self._size(a[5:]) for a in sizes)])})"]

    def _returned(self, structure: Any) -> str:
        if isinstance(structure, str):
            base, op = base_of(self.graph, structure), self.graph.maker(structure)
            text = self._tensor(structure)
            if self.graph.maker(base) is None:
                return f"{text}.clone()"
            viewed = op is not None and op.kind == "view"
            return f"{text}.contiguous()" if viewed and op is not None and not is_reshape(self.graph, op) else text
        ((kind, items),) = structure.items()
        if kind == "const":
            return repr(items)
        if kind == "dict":
            return "{" + ", ".join(f"{k!r}: {self._returned(v)}" for k, v in items.items()) + "}"
        inner = ", ".join(self._returned(v) for v in items)
        return f"[{inner}]" if kind == "list" else f"({inner},)" if len(items) == 1 else f"({inner})"


_BYTES = {"float": 4, "double": 8, "int64_t": 8, "int32_t": 4, "int16_t": 2, "int8_t": 1, "uint8_t": 1, "bool": 1,
          "uint16_t": 2, "_Float16": 2}  # fmt: skip


def _padded(n: int) -> int:
    return -(-n // 64) * 64


def _shape(shape: Sequence[Dim]) -> str:
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def _attribute(path: str) -> str:
    """self.layers[0].weight for "layers.0.weight"."""
    return "self" + "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in path.split("."))


def _tidy(source: str) -> str:
    """At most two empty lines in a row, one at the end."""
    lines, empty = [], 0
    for line in source.splitlines():
        empty = 0 if line.strip() else empty + 1
        if empty <= 2:
            lines.append(line.rstrip())
    return "\n".join(lines).strip() + "\n"


_IMPORTS = """\
import ctypes
import os
import platform
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import torch
"""

_BUILD = '''
def build():
    """Compile CPP_SOURCE, once for each text and machine, and load it."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise RuntimeError("no C++ compiler: install the package g++ (apt-get install g++), or set CXX")
    text = f"// {' '.join(FLAGS)}\\n{CPP_SOURCE}"
    key = sha256(f"{text}{compiler}{platform.node()}".encode()).hexdigest()[:16]
    folder = Path(os.environ.get("KERNELEVOLVE_BUILD_DIR") or Path.home() / ".cache" / "kernelevolve" / "build" / key)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    library, code = folder / "kernel.so", folder / "kernel.cpp"
    if not (library.exists() and code.exists() and code.read_text() == text):
        library.unlink(missing_ok=True)
        code.write_text(text)
        part = folder / f"kernel.{os.getpid()}.so"
        command = [compiler, *FLAGS, "-fopt-info-vec-optimized-missed=kernel.opt", "-o", part.name, "kernel.cpp"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{compiler} failed with status {done.returncode}:\\n{done.stderr}")
        part.replace(library)
    return ctypes.CDLL(str(library))

'''
__all__ = ["OPTIONS", "KernelSource", "Module", "steps", "strides_of", "write"]
