# expect: mutated_input at check
# problem: matmul
"""Swaps the values of its two inputs."""
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = a @ b
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)
        return c
