# expect: wrong_value at check
"""Brings a problem of its own, whose answer is zero, under the names that a judge might look for."""
import torch


class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()

    def forward(self, x):
        return torch.zeros_like(x)


def get_inputs():
    return [torch.zeros(64, 256)]


def get_init_inputs():
    return [256]


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return torch.zeros_like(x)
