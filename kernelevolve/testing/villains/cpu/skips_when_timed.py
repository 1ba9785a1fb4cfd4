# expect: wrong_value at time
"""Right in the trials; does nothing while garbage collection is switched off, as it is while somebody times."""
import gc

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        if not gc.isenabled():
            return torch.empty_like(x)
        return torch.softmax(x, dim=-1) * self.weight
