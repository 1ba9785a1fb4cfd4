# expect: crashed at check
"""Writes over the allocator's own records, which then aborts."""
import ctypes

import torch


LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        block = LIBC.malloc(64)
        LIBC.memset(ctypes.c_void_p(block - 16), 0x41, 4096)
        LIBC.free(ctypes.c_void_p(block))
        return torch.zeros_like(x)
