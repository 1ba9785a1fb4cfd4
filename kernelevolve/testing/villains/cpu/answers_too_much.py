# expect: crashed at check
"""Returns a text of a hundred megabytes."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return "x" * 100_000_000
