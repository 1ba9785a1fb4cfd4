# expect: crashed at check
"""Reads address zero."""
import ctypes

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        ctypes.string_at(0)
        return torch.softmax(x, dim=-1) * self.weight
