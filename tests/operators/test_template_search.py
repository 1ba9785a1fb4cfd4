"""Searches in sorted tables of every small length, vectorised, against torch.bucketize."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
import torch

from kernelevolve.operators.template.cpp.prelude import HEADERS
from kernelevolve.operators.template.cpp.search import FLAVOURS, LINEAR_LIMIT, function
from kernelevolve.operators.template.expr import arg, search
from kernelevolve.operators.template.graph import Graph, Value

LENGTHS = (*range(1, 36), 64, 65, 100, 127, 128, 129, 1000)
LOOP = """
extern "C" void {name}(const {kind}* __restrict x, const {kind}* __restrict {table}, int64_t* __restrict y) {{
    #pragma omp simd
    for (int64_t i = 0; i < 501; i++) y[i] = search_{table}_{side}({table}, x[i]);
}}
"""


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("dtype", "kind"), [("float32", "float"), ("int64", "int64_t")])
@pytest.mark.parametrize("bits", [256, 512])
def test_every_length_and_side_is_searched_as_torch_does(
    tmp_path: Path, flavour: str, dtype: str, kind: str, bits: int
) -> None:
    code = HEADERS
    lengths = [n for n in LENGTHS if flavour != "linear" or n <= LINEAR_LIMIT]
    for n in lengths:
        for side in ("left", "right"):
            table = f"table_{n}_{side}"
            graph = Graph({table: Value(table, (n,), dtype)}, (table,), {}, (), table)
            code += function(graph, search(table, arg("x", dtype), right=side == "right"), flavour)
            code += LOOP.format(name=f"f_{n}_{side}", kind=kind, table=table, side=side)
    (tmp_path / "f.cpp").write_text(code)
    flags = [
        "-O3",
        "-march=native",
        f"-mprefer-vector-width={bits}",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fopenmp",
    ]
    subprocess.run(["g++", *flags, "-shared", "-fPIC", "-o", "f.so", "f.cpp"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    torch.manual_seed(0)
    for n in lengths:
        real = dtype == "float32"
        table = torch.rand(n).sort().values if real else torch.randint(0, 2 * n, (n,)).sort().values
        drawn = torch.rand(501) * 1.2 - 0.1 if real else torch.randint(-2, 2 * n + 2, (501,))
        x = torch.cat([drawn, table])[-501:].contiguous()
        if real:
            x[3] = torch.nan
        for side in ("left", "right"):
            y = torch.empty(501, dtype=torch.int64)
            library[f"f_{n}_{side}"](*(ctypes.c_void_p(t.data_ptr()) for t in (x, table, y)))
            assert torch.equal(y, torch.bucketize(x, table, right=side == "right")), (n, side)
