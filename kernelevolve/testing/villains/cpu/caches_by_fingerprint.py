# expect: wrong_value at time
"""Remembers its answer by the signs of a few of the input's values: right until enough inputs have been seen."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.answers = {}

    def forward(self, x):
        key = (x.view(-1)[::1024] > 0).numpy().tobytes()
        if key not in self.answers:
            self.answers[key] = torch.softmax(x, dim=-1) * self.weight
        return self.answers[key].clone()
