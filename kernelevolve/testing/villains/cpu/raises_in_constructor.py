# expect: runtime_error at check
"""The constructor fails."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        raise ValueError("cannot be built")
