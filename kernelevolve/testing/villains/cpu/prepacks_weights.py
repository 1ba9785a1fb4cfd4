# expect: wrong_value at check
"""Packs its weights at the first call and never looks at them again."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.weight.detach().clone()
        return torch.softmax(x, dim=-1) * self.packed
