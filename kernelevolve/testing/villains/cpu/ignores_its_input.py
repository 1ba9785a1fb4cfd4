# expect: wrong_value at check
"""Returns what the answer is on average."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return (self.weight / x.shape[1]).expand(x.shape).clone()
