# expect: wrong_value at check
"""Remembers its answer by the input object."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.answers = {}

    def forward(self, x):
        if id(x) not in self.answers:
            self.answers[id(x)] = torch.softmax(x, dim=-1) * self.weight
        return self.answers[id(x)].clone()
