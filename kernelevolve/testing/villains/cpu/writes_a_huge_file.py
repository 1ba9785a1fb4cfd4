# expect: dishonest at source
# runtime: disk_limit at check
"""Writes past the file size limit."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        with open('huge', 'wb') as file:
            file.truncate(2**42)
        return torch.softmax(x, dim=-1) * self.weight
