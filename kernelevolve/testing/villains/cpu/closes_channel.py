# expect: crashed at check
"""Closes every descriptor it has."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        os.closerange(3, 1024)
        return torch.softmax(x, dim=-1) * self.weight
