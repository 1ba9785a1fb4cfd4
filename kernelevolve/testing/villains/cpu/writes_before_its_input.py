# expect: mutated_input at check
"""Writes a few bytes before the start of its input."""
import ctypes

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        ctypes.memset(x.data_ptr() - 32, 0, 32)
        return torch.softmax(x, dim=-1) * self.weight
