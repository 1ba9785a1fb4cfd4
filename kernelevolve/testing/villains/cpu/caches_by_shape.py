# expect: wrong_value at check
"""Remembers its answer by the input's shape."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.answers = {}

    def forward(self, x):
        if x.shape not in self.answers:
            self.answers[x.shape] = torch.softmax(x, dim=-1) * self.weight
        return self.answers[x.shape].clone()
