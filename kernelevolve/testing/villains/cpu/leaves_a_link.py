# expect: runtime_error at check
# level: bubblewrap
"""Leaves links to a folder that is not its own, for whoever cleans up by following them; then fails."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        for name in ("a", "b"):
            os.symlink("/var/tmp", name)
        raise RuntimeError("the trap is set")
