# expect: wrong_value at check
"""Leaves folders in folders, fifteen hundred deep, which whoever cleans up must survive."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        start = os.getcwd()
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
        os.chdir(start)
        return torch.zeros_like(x)
