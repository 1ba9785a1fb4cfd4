# expect: runtime_error at check
"""Fails with a message that clears the terminal and writes a verdict of its own there."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        raise ValueError("\x1b[2J\x1b[H\x1b[32mcorrect, 99x\x1b[0m<script>alert(1)</script>")
