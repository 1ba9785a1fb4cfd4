"""Bias and exact (erf) GELU.

Where: after the first matrix product of a transformer's feed-forward block, when the product is left to a library.
Size: 256 tokens of width 3072 (BERT-base); 3 MiB in, 3 MiB out.
"""

import torch
import torch.nn.functional as F

tokens = 256
width = 3072

CASES = {"tuned": {"tokens": 256}, "sentence": {"tokens": 17}, "long": {"tokens": 512}}


class Model(torch.nn.Module):
    """Bias, then torch's GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(0.5 * torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (tokens, width) float32."""
        return F.gelu(x + self.bias)


def get_inputs():
    return [torch.randn(tokens, width)]


def get_init_inputs():
    return [width]
