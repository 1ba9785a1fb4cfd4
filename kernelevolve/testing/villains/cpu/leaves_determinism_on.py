# expect: dishonest at source
# runtime: dishonest at check
"""Demands deterministic algorithms of everybody."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        torch.use_deterministic_algorithms(True, warn_only=True)
        return torch.softmax(x, dim=-1) * self.weight
