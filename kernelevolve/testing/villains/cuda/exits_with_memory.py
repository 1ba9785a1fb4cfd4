# expect: crashed at check
# problem: softmax_large
"""Takes a quarter of the device's memory and ends without giving it back."""
import os

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        held = torch.ones(torch.cuda.mem_get_info()[1] // 4, dtype=torch.uint8, device=x.device)
        torch.cuda.synchronize()
        os._exit(int(held[0]) - 1)
