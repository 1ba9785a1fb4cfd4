# expect: wrong_value at check
# problem: matmul
"""Multiplies in half precision."""
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return (a.half() @ b.half()).float()
