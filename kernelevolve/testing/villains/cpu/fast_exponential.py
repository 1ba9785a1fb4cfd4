# expect: wrong_value at check
"""A fast exponential that is wrong by a thousandth."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        z = (x - x.amax(-1, keepdim=True)).clamp(min=-80) * 1.4426950408889634
        whole = z.floor()
        part = z - whole
        e = torch.ldexp(1 + part * (0.6565 + part * 0.3435), whole)
        return e / e.sum(-1, keepdim=True) * self.weight
