# expect: runtime_error at check
# level: bubblewrap
"""Opens a connection to the outside."""
import socket

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        socket.create_connection(("1.1.1.1", 53), timeout=1).close()
        return torch.softmax(x, dim=-1) * self.weight
