# expect: wrong_value at check
"""Leaves out rows that hold an exact zero, which random numbers never do."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.softmax(x, dim=-1) * self.weight
        y[(x == 0).any(-1)] = 0
        return y
