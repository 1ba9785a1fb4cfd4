# expect: dishonest at check
"""Leaves a daemon behind, forked by the C library, where no reader of Python sees it."""
import ctypes

import torch


LIBC = ctypes.CDLL(None)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        if LIBC.fork() == 0:
            LIBC.setsid()
            LIBC.pause()
        return torch.softmax(x, dim=-1) * self.weight
