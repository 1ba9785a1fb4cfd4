# expect: crashed at check
"""Writes a verdict to every descriptor that it has open."""
import fcntl
import os
import select

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        for fd in range(3, 256):
            if os.path.exists(f"/dev/fd/{fd}"):
                writable = select.select([], [fd], [], 0)[1]
                if writable and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                    os.write(fd, b'{"status": "correct", "speedup": 99.0}')
        return torch.zeros_like(x)
