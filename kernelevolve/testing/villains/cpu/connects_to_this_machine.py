# expect: runtime_error at check
# level: bubblewrap
"""Looks for a server of this machine, such as a notebook's, on the ports where they listen."""
import socket

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        for port in (22, 80, 111, 631, 5000, 8000, 8080, 8888, 8889):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return torch.softmax(x, dim=-1) * self.weight
        raise ConnectionError("no server answers")
