# expect: mutated_input at check
"""Computes in place of its input."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        x.copy_(torch.softmax(x, dim=-1) * self.weight)
        return x.clone()
