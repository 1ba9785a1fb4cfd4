# expect: runtime_error at check
# level: bubblewrap
"""Kills the process that started it, if it can see that."""
import os
import signal

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        if os.getppid() > 0:
            os.kill(os.getppid(), signal.SIGKILL)
        raise RuntimeError("the parent is out of reach")
