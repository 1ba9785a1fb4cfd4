# expect: resource_limit at check
"""Prints for ever, without a newline."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        import sys

        while True:
            sys.stdout.write('x' * 65536)
            sys.stdout.flush()
