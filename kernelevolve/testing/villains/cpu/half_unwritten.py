# expect: wrong_value at check
"""Leaves half of its output unwritten."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        half = x.shape[0] // 2
        y[:half] = torch.softmax(x[:half], dim=-1) * self.weight
        return y
