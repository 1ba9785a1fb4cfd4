# expect: out_of_memory at check
# problem: softmax_large
"""Asks the host, not the device, for a terabyte."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.weight + torch.ones(2**38, dtype=torch.int32)[: x.shape[1]].to(x.device)
