# expect: wrong_value at check
"""Packs its weights in the constructor, before they are loaded."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.packed = self.weight.detach().clone()

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.packed
