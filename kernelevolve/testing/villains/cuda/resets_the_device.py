# expect: device_fault at check
# problem: softmax_large
"""Destroys the device's context under everybody's feet."""
import ctypes

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.softmax(x, dim=-1) * self.weight
        torch.cuda.synchronize()
        ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0)
        return y
