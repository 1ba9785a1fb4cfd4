# expect: wrong_value at check
"""Takes numbers above ten for ten."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return torch.softmax(x.clamp(-10, 10), dim=-1) * self.weight
