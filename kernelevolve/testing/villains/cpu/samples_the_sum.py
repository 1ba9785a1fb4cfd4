# expect: wrong_value at check
# problem: matmul
"""Adds every second term of the sum and doubles it."""
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a[:, ::2] @ b[::2] * 2
