# expect: timeout at check
"""Announces a message, sends half of it, and waits."""
import os
import signal
import stat

import torch


def send(data):
    """Write bytes to every socket that this process holds."""
    for fd in range(3, 256):
        if os.path.exists(f"/dev/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, data)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        send((100).to_bytes(8, "little") + b'{"tree":')
        signal.pause()
