# expect: wrong_value at check
"""Remembers its answer by the input's address."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        if not hasattr(self, 'answers'):
            self.answers = {}
        if x.data_ptr() not in self.answers:
            self.answers[x.data_ptr()] = torch.softmax(x, dim=-1) * self.weight
        return self.answers[x.data_ptr()].clone()
