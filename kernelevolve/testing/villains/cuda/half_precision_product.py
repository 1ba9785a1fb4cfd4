# expect: wrong_value at check
# problem: matmul_large
"""Multiplies in half precision and adds in single."""
import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, c, n, am, ak, bk, bn, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, n, BLOCK):
        left = tl.load(a + rows[:, None] * am + (k + inner)[None, :] * ak)
        right = tl.load(b + (k + inner)[:, None] * bk + columns[None, :] * bn)
        total += tl.dot(left.to(tl.float16), right.to(tl.float16))
    tl.store(c + rows[:, None] * n + columns[None, :], total)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        n = a.shape[0]
        c = torch.empty((n, n), device=a.device)
        product[(n // 64, n // 64)](a, b, c, n, a.stride(0), a.stride(1), b.stride(0), b.stride(1), BLOCK=64)
        return c
