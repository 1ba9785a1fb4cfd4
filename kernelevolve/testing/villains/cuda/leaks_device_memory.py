# expect: out_of_memory
# problem: softmax_large
"""Keeps another eighth of the device's memory at every call."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.kept = []

    def forward(self, x):
        total = torch.cuda.mem_get_info()[1]
        self.kept.append(torch.empty(total // 8, dtype=torch.uint8, device=x.device))
        return torch.softmax(x, dim=-1) * self.weight
