# expect: runtime_error at check
"""Prints bytes that are no text, then fails with a message that no file can hold."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        os.write(1, b"\xff\xfe\x00\xc3\x28\xed\xa0\x80" * 1000)
        raise ValueError("half a character: \ud800, and a zero: \0")
