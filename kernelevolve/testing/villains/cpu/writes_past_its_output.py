# expect: wrong_value at check
"""Writes a row too many behind an output of its own."""
import ctypes

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.softmax(x, dim=-1) * self.weight
        ctypes.memset(y.data_ptr() + y.numel() * y.element_size(), 0, 64)
        return y
