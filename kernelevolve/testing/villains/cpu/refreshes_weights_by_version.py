# expect: wrong_value at check
"""Packs its weights again only when their address changes, which loading new values does not."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.address = None

    def forward(self, x):
        if self.address != self.weight.data_ptr():
            self.address, self.packed = self.weight.data_ptr(), self.weight.detach().clone()
        return torch.softmax(x, dim=-1) * self.packed
