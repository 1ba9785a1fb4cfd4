# expect: wrong_value at check
"""Wrong at every third call, like a kernel with a race."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = torch.softmax(x, dim=-1) * self.weight
        return y * 1.01 if self.calls % 3 == 0 else y
