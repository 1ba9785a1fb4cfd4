# expect: runtime_error at check
# level: bubblewrap
"""Deletes a file that is not its own: a canary, which whoever tests this puts there."""
from pathlib import Path

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        Path("/var/tmp/kernelevolve-canary").unlink()
        return torch.softmax(x, dim=-1) * self.weight
