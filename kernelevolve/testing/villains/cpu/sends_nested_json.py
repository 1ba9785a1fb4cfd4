# expect: crashed at check
"""Sends the judge brackets in brackets, a hundred thousand deep."""
import os
import stat

import torch


def send(body):
    """Write one message to every socket that this process holds."""
    for fd in range(3, 256):
        if os.path.exists(f"/dev/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, len(body).to_bytes(8, "little") + body)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        send(b"[" * 100_000 + b"]" * 100_000)
        return torch.zeros_like(x)
