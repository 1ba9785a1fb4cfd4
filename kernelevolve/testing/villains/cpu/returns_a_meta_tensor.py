# expect: wrong_structure at check
"""Returns a tensor without data."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return torch.empty_like(x, device="meta")
