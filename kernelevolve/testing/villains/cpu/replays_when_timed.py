# expect: wrong_value at time
"""Right in the trials; while it is timed it returns a copy of an earlier answer."""
import gc

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.answer = None

    def forward(self, x):
        if gc.isenabled() or self.answer is None:
            self.answer = torch.softmax(x, dim=-1) * self.weight
        return self.answer.clone()
