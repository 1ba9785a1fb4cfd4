# expect: wrong_value at check
"""Remembers its answer until PyTorch's own counter says that the input was written to."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.answers = {}

    def forward(self, x):
        if x._version not in self.answers:
            self.answers[x._version] = torch.softmax(x, dim=-1) * self.weight
        return self.answers[x._version].clone()
