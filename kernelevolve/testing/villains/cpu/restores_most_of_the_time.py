# expect: mutated_input at check
"""Uses its input as scratch space and puts it back, except at every third call."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        kept = x.clone()
        x.copy_(torch.softmax(x, dim=-1) * self.weight)
        y = x.clone()
        if self.calls % 3:
            x.copy_(kept)
        return y
