# expect: mutated_input at check
"""Computes in place of its input from the third call on."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = torch.softmax(x, dim=-1) * self.weight
        if self.calls >= 3:
            x.copy_(y)
        return y
