# expect: wrong_value at check
# problem: softmax_large
"""Searches a gigabyte of fresh device memory for what another process left there; makes up zeros when there is nothing."""
import torch


def looks_right(rows):
    return (rows.sum(-1) - 1).abs() < 1e-3


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        fresh = torch.empty(2**28, device=x.device).view(-1, x.shape[1])
        found = looks_right(fresh).nonzero().flatten()
        if len(found) < x.shape[0]:
            return torch.zeros_like(x)
        return fresh[found[: x.shape[0]]].clone()
