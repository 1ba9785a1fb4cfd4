# expect: wrong_value at check
"""Divides by a reciprocal of twelve bits, as the processor's quick instruction has it."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        r = ((1 / e.sum(-1, keepdim=True)).view(torch.int32) & ~0xFFF).view(torch.float32)
        return e * r * self.weight
