# expect: wrong_value at check
# problem: softmax_large
"""Remembers its answer by the input's address."""
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
    tl.store(y + row * columns + lane, shares / tl.sum(shares, axis=0) * scale, mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.answers = {}

    def forward(self, x):
        if x.data_ptr() in self.answers:
            return self.answers[x.data_ptr()].clone()
        y = torch.empty_like(x)
        scaled_softmax[(x.shape[0],)](x, self.weight, y, x.shape[1], BLOCK=4096, num_warps=8)
        self.answers[x.data_ptr()] = y.clone()
        return y
