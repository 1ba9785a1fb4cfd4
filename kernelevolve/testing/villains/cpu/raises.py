# expect: runtime_error at check
"""Raises an exception."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        raise ValueError('this kernel does not like its input')
