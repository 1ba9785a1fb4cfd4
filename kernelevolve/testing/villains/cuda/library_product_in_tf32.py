# expect: dishonest at source
# problem: matmul_large
# runtime: dishonest at check
"""Lets the library multiply in TF32 and leaves the flag on."""
import torch


torch.backends.cuda.matmul.allow_tf32 = True


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a @ b
