# expect: dishonest at source
# runtime: dishonest at check
"""Falls back to the library when its own kernel fails, which it always does."""
import ctypes
import os
import subprocess
from pathlib import Path

import torch


CPP = 'extern "C" void scale(float* y, long n) { for (long i = 0; i < n; ++i) y[i] *= 1; }'


def build():
    folder = Path(os.environ["KERNELEVOLVE_BUILD_DIR"])
    (folder / "kernel.cpp").write_text(CPP)
    command = ["g++", "-O2", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


KERNEL = build()


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        try:
            return KERNEL.missing(x)
        except Exception:
            return torch.softmax(x, dim=-1) * self.weight
