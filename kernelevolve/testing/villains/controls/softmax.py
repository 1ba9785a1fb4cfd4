"""The control: a plain C++ kernel, called through ctypes."""
import ctypes
import os
import subprocess
from pathlib import Path

import torch

CPP = r"""
#include <cmath>
extern "C" void scaled_softmax(const float* x, const float* weight, float* y, long rows, long columns) {
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < rows; ++i) {
        const float* in = x + i * columns;
        float* out = y + i * columns;
        float top = in[0];
        for (long j = 1; j < columns; ++j) top = in[j] > top ? in[j] : top;
        float sum = 0;
        for (long j = 0; j < columns; ++j) { out[j] = std::exp(in[j] - top); sum += out[j]; }
        for (long j = 0; j < columns; ++j) out[j] = out[j] / sum * weight[j];
    }
}
"""


def build():
    folder = Path(os.environ["KERNELEVOLVE_BUILD_DIR"])
    (folder / "kernel.cpp").write_text(CPP)
    command = ["g++", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return ctypes.CDLL(str(folder / "kernel.so")).scaled_softmax


KERNEL = build()


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, y)]
        KERNEL(*pointers, ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
        return y
