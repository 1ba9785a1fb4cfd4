# expect: wrong_value at check
# problem: matmul
"""Lets each of its two inputs point to the other's memory, so that the next call finds them swapped."""
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a @ b
        a.data, b.data = b.data, a.data
        return c
