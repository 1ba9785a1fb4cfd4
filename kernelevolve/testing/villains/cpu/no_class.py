# expect: compile_error at build
"""Lacks ModelNew."""
import torch


class Model(torch.nn.Module):
    pass
