"""The control: one Triton program per row."""
import torch
import triton
import triton.language as tl


@triton.jit
def logsumexp(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + lane, mask=lane < columns, other=float("-inf"))
    top = tl.max(values, axis=0)
    tl.store(y + row, top + tl.log(tl.sum(tl.exp(values - top), axis=0)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        logsumexp[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)
        return y
