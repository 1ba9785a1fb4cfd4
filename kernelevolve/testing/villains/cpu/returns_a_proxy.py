# expect: wrong_structure at check
"""Returns an object that looks like a tensor and computes when asked."""
import torch


class Proxy:
    def __init__(self, x, weight):
        self.x, self.weight = x, weight

    def __getattr__(self, name):
        return getattr(torch.softmax(self.x, dim=-1) * self.weight, name)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return Proxy(x, self.weight)
