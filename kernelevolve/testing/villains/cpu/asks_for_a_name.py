# expect: runtime_error at check
# level: bubblewrap
"""Asks the name service for an address, which can carry secrets out."""
import socket

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        socket.getaddrinfo("kernelevolve.example.com", 443)
        return torch.softmax(x, dim=-1) * self.weight
