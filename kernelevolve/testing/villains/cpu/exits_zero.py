# expect: crashed at check
"""Ends with exit code 0 before it answers: no verdict is not a good verdict."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        os._exit(0)
