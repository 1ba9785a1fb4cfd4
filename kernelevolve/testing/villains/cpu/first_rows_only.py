# expect: wrong_value at check
"""Computes the first half of the rows."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.softmax(x, dim=-1) * self.weight
        y[x.shape[0] // 2:] = y[:x.shape[0] // 2]
        return y
