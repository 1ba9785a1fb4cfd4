# expect: wrong_value at check
"""One element is off by a part in a thousand: too little for a norm over all of them."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.softmax(x, dim=-1) * self.weight
        y[-1, -1] *= 1.001
        return y
