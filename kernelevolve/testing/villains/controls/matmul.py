"""The control: a plain C++ kernel, called through ctypes."""
import ctypes
import os
import subprocess
from pathlib import Path

import torch

CPP = r"""
extern "C" void product(const float* a, const float* b, float* c, long n) {
    #pragma omp parallel for schedule(static)
    for (long i = 0; i < n; ++i) {
        float* row = c + i * n;
        for (long j = 0; j < n; ++j) row[j] = 0;
        for (long k = 0; k < n; ++k)
            for (long j = 0; j < n; ++j) row[j] += a[i * n + k] * b[k * n + j];
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
    return ctypes.CDLL(str(folder / "kernel.so")).product


KERNEL = build()


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        b, c = b.contiguous(), torch.empty_like(a)
        KERNEL(*[ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)], ctypes.c_long(a.shape[0]))
        return c
