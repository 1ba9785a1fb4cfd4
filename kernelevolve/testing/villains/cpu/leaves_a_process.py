# expect: dishonest at source
# runtime: dishonest at check
"""Leaves a process behind at the first call."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.left = None

    def forward(self, x):
        if self.left is None:
            self.left = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
        return torch.softmax(x, dim=-1) * self.weight
