# expect: wrong_value at check
"""Leaves folders in folders, three thousand deep, which whoever cleans up must survive."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        return torch.zeros_like(x)
