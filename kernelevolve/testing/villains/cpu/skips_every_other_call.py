# expect: wrong_value at time
"""Right in the trials; once it is timed, it works at every second call."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 20 and self.calls % 2:
            return torch.empty_like(x)
        return torch.softmax(x, dim=-1) * self.weight
