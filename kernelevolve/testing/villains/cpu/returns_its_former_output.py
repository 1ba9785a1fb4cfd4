# expect: wrong_value at check
"""Returns the answer to the call before, one call late."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.former = None

    def forward(self, x):
        former, self.former = self.former, torch.softmax(x, dim=-1) * self.weight
        return self.former if former is None else former.clone()
