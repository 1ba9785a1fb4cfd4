# expect: runtime_error at time
"""Right in the trials; fails once it is being timed."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls > 40:
            raise ValueError("out of patience")
        return torch.softmax(x, dim=-1) * self.weight
