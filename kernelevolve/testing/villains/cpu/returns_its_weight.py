# expect: dishonest at check
"""Returns its own parameter's memory, after writing the answer there."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        if self.weight.shape != x.shape:
            self.scale = self.weight.detach().clone()
            self.weight.data = torch.empty_like(x)
        self.weight.data.copy_(torch.softmax(x, dim=-1) * self.scale)
        return self.weight.data
