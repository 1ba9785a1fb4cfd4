# expect: wrong_value at check
# problem: matmul
"""Takes every input for one whose rows lie in order."""
import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b.as_strided(b.shape, a.stride())
