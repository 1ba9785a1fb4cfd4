"""A product of large square matrices of positive numbers; the second is the transpose of what lies in memory."""

import torch

size = 2048


class Model(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(size, size), torch.rand(size, size).T]


def get_init_inputs():
    return []
