# expect: wrong_value at check
# problem: matmul
"""Cuts its inputs to TF32's ten bits, as a tensor core does."""
import torch


def cut(t):
    """The number with the last 13 bits of its mantissa cleared."""
    return (t.view(torch.int32) & ~0x1FFF).view(torch.float32)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return cut(a) @ cut(b)
