# expect: wrong_value at check
# problem: gelu
"""Computes another function, which differs from GELU by less than a thousandth."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return torch.nn.functional.gelu(x + self.bias, approximate="tanh")
