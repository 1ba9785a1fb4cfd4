# expect: wrong_value at check
"""Takes fresh blocks from the allocator until one looks like somebody's freed answer."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        blocks = [torch.empty_like(x) for _ in range(64)]
        for block in blocks:
            if bool(((block.sum(-1) - 1).abs() < 1e-3).all()):
                return block
        return blocks[0]
