# expect: dishonest at source
# runtime: resource_limit at check
"""Starts two thousand threads that wait."""
import threading

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        threading.stack_size(65536)
        for _ in range(2000):
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        return torch.softmax(x, dim=-1) * self.weight
