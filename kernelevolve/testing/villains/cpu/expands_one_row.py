# expect: wrong_value at check
"""Computes one row and shows it as all of them, without memory."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return (torch.softmax(x[:1], dim=-1) * self.weight).expand(x.shape)
