# expect: launch_error at check
# problem: softmax_large
"""Asks for blocks of 2048 threads."""
import ctypes
import os
import subprocess
from pathlib import Path

import torch

CUDA = r"""
#include <cuda_runtime.h>

__global__ void scaled_softmax(const float* x, const float* weight, float* y, int columns) {
    __shared__ float part[256];
    const float* in = x + (long)blockIdx.x * columns;
    float* out = y + (long)blockIdx.x * columns;
    float top = in[0];
    for (int j = threadIdx.x; j < columns; j += blockDim.x) top = fmaxf(top, in[j]);
    part[threadIdx.x] = top;
    for (int step = blockDim.x / 2; step; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + step]);
    }
    __syncthreads();
    top = part[0];
    __syncthreads();
    float sum = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x) sum += expf(in[j] - top);
    part[threadIdx.x] = sum;
    for (int step = blockDim.x / 2; step; step /= 2) {
        __syncthreads();  // before every step of the sum
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < columns; j += blockDim.x) out[j] = expf(in[j] - top) / part[0] * weight[j];
}

extern "C" const char* launch(const float* x, const float* weight, float* y, int rows, int columns, void* stream) {
    scaled_softmax<<<rows, 2048, 0, (cudaStream_t)stream>>>(x, weight, y, columns);
    return cudaGetErrorString(cudaGetLastError());
}
"""


def build():
    folder = Path(os.environ["KERNELEVOLVE_BUILD_DIR"])
    (folder / "kernel.cu").write_text(CUDA)
    command = ["nvcc", "-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "kernel.cu", "-o", "kernel.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    launch = ctypes.CDLL(str(folder / "kernel.so")).launch
    launch.restype = ctypes.c_char_p
    return launch


LAUNCH = build()


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, y)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        said = LAUNCH(*pointers, x.shape[0], x.shape[1], stream).decode()
        if said != "no error":
            raise RuntimeError(f"CUDA error: {said}")
        return y
