# expect: wrong_value at time
"""Right in the trials; skips the work once it is being timed."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        self.calls = getattr(self, 'calls', 0) + 1
        if self.calls > 20:
            return torch.zeros_like(x)
        return torch.softmax(x, dim=-1) * self.weight
