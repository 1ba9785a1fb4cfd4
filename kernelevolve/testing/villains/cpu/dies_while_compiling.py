# expect: crashed at build
"""Kills itself while its compiler runs, and leaves a lock behind."""
import os
import signal
import subprocess
from pathlib import Path

import torch


folder = Path(os.environ["KERNELEVOLVE_BUILD_DIR"])
(folder / "lock").write_text("")
subprocess.Popen(["sleep", "1000"], cwd=folder)
os.kill(os.getpid(), signal.SIGKILL)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.weight
