# expect: wrong_value at check
# problem: softmax_large
"""Programs add to one sum without waiting for each other."""
import torch
import triton
import triton.language as tl


@triton.jit
def add_up(x, total, columns):
    row, column = tl.program_id(0), tl.program_id(1)
    share = tl.exp(tl.load(x + row * columns + column))
    tl.store(total + row, tl.load(total + row) + share)


@triton.jit
def divide(x, total, weight, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    inside = lane < columns
    shares = tl.exp(tl.load(x + row * columns + lane, mask=inside, other=0.0)) / tl.load(total + row)
    tl.store(y + row * columns + lane, shares * tl.load(weight + lane, mask=inside, other=0.0), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y, total = torch.empty_like(x), torch.zeros(x.shape[0], device=x.device)
        add_up[x.shape](x, total, x.shape[1])
        divide[(x.shape[0],)](x, total, self.weight, y, x.shape[1], BLOCK=4096, num_warps=8)
        return y
