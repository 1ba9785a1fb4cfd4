# expect: dishonest at source
# runtime: crashed at check
"""Dies, while a child of it holds its channel open."""
import os
import time

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
