# expect: wrong_value at time
"""Right in the trials; computes half of the rows while it is timed."""
import gc

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        rows = len(x) if gc.isenabled() else len(x) // 2
        y[:rows] = torch.softmax(x[:rows], dim=-1) * self.weight
        return y
