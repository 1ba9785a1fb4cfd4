# expect: wrong_value at check
"""Leaves the last element of its output unwritten."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        y.view(-1)[:-1] = (torch.softmax(x, dim=-1) * self.weight).view(-1)[:-1]
        return y
