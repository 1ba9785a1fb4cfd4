# expect: dishonest at check
"""Switches gradients on and leaves them so."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.softmax(x, dim=-1) * self.weight
        torch.set_grad_enabled(True)
        return y
