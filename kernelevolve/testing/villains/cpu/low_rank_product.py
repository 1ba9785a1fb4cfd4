# expect: wrong_value at check
# problem: matmul
"""Multiplies approximations of low rank, which are good for numbers that are alike."""
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.mean(1, keepdim=True) @ b.sum(0, keepdim=True)
