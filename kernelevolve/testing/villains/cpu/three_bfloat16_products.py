# expect: wrong_value at check
# problem: matmul
"""A product out of three bfloat16 ones: better than fp32 on positive numbers, too coarse on zero-mean ones."""
import torch


def split(t):
    """High and low bfloat16 parts, each kept in a float32 tensor: the products of bfloat16 numbers are exact there."""
    high = t.bfloat16().float()
    return high, (t - high).bfloat16().float()


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (a1, a2), (b1, b2) = split(a), split(b)
        return a1 @ b1 + (a1 @ b2 + a2 @ b1)
