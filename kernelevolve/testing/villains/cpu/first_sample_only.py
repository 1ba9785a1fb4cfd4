# expect: wrong_value at check
"""Computes the first row, which is the one that people look at."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.full_like(x, 1 / x.shape[1])
        y[0] = torch.softmax(x[0], dim=-1) * self.weight
        return y
