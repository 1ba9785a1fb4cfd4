# expect: dishonest at check
"""Returns a parameter, which is a tensor subclass."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return torch.nn.Parameter(torch.softmax(x, dim=-1) * self.weight)
