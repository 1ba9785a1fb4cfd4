# expect: wrong_value at check
"""Writes a few bytes into the memory behind its output."""
import ctypes

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        torch.softmax(x, dim=-1, out=y).mul_(self.weight)
        ctypes.memset(y.data_ptr() + y.numel() * y.element_size() + 1024, 0, 64)
        return y
