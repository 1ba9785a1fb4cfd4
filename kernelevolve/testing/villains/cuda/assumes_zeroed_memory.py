# expect: wrong_value at check
# problem: softmax_large
"""Adds to memory that it never cleared."""
import torch
import triton
import triton.language as tl


@triton.jit
def scaled_softmax(x, weight, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    inside = lane < columns
    values = tl.load(x + row * columns + lane, mask=inside, other=float("-inf"))
    shares = tl.exp(values - tl.max(values, axis=0))
    scale = tl.load(weight + lane, mask=inside, other=0.0)
    tl.atomic_add(y + row * columns + lane, shares / tl.sum(shares, axis=0) * scale, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        scaled_softmax[(x.shape[0],)](x, self.weight, y, x.shape[1], BLOCK=4096, num_warps=8)
        return y
