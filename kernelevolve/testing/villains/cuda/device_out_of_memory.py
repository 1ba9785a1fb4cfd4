# expect: out_of_memory at check
# problem: softmax_large
"""Asks the device for sixteen terabytes."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.weight + torch.empty(2**42, device=x.device)[: x.shape[1]]
