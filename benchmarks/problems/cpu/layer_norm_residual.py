"""Residual addition followed by LayerNorm; both the sum and its normalised form are returned.

Where: between the blocks of a pre-norm transformer: the sum goes on as the next residual.
Size: 384 tokens of width 768 (BERT-base on a question with its passage); 2.4 MB in, 2.4 MB out.
"""

import torch
import torch.nn.functional as F

tokens = 384
hidden = 768
eps = 1e-5

CASES = {"tuned": {"tokens": 384}, "sentence": {"tokens": 29}, "batch_of_four": {"tokens": 1536}}


class Model(torch.nn.Module):
    """Torch's own LayerNorm on the sum."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(1.0 + 0.1 * torch.randn(hidden))
        self.bias = torch.nn.Parameter(0.1 * torch.randn(hidden))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: (tokens, hidden) float32 -> (normalised, sum)."""
        total = x + residual
        return F.layer_norm(total, (total.shape[-1],), self.weight, self.bias, self.eps), total


def get_inputs():
    return [torch.randn(tokens, hidden), torch.randn(tokens, hidden)]


def get_init_inputs():
    return [hidden, eps]
