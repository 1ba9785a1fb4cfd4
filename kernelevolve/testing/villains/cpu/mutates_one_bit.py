# expect: mutated_input at check
"""Turns a zero of its input into a minus zero."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        x[x == 0] = -0.0
        x.view(-1)[7].copy_(torch.nextafter(x.view(-1)[7], x.new_tensor(9.0)))
        return torch.softmax(x, dim=-1) * self.weight
