# expect: runtime_error at check
# level: bubblewrap
"""Looks for keys and tokens in its environment."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        keys = [name for name in os.environ if name.endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD"))]
        if not keys:
            raise LookupError("no keys")
        return torch.softmax(x, dim=-1) * self.weight
