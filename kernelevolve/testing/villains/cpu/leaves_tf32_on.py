# expect: dishonest at source
# runtime: dishonest at check
"""Switches the TF32 flags on for everybody."""
import torch


torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return torch.softmax(x, dim=-1) * self.weight
