# expect: dishonest at source
# runtime: resource_limit at check
"""Starts three hundred processes that wait."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        for _ in range(300):
            os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
        return torch.softmax(x, dim=-1) * self.weight
