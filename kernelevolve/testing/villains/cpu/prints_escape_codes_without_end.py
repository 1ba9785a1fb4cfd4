# expect: resource_limit at check
"""Clears the screen, moves the cursor and renames the window, for ever."""
import sys

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        while True:
            sys.stdout.write("\x1b[2J\x1b[H\x1b]0;correct\x07all tests passed\r" * 1000)
            sys.stdout.flush()
