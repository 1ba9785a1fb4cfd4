"""SwiGLU activation: silu(gate) * up, the two halves side by side in one tensor.

Where: feed-forward block of Llama-style models, after the fused gate-and-up product.
Size: 128 tokens of width 2 x 5632 (a 1.1-billion-parameter model); 5.5 MiB in, 2.75 MiB out.
"""

import torch
import torch.nn.functional as F

tokens = 128
width = 5632

CASES = {"tuned": {"tokens": 128}, "decode": {"tokens": 1}, "odd_chunk": {"tokens": 77}}


class Model(torch.nn.Module):
    """Split, activate, multiply."""

    def forward(self, gate_and_up: torch.Tensor) -> torch.Tensor:
        """gate_and_up: (tokens, 2 * width) float32 -> (tokens, width)."""
        gate, up = gate_and_up.chunk(2, dim=-1)
        return F.silu(gate) * up


def get_inputs():
    return [torch.randn(tokens, 2 * width)]


def get_init_inputs():
    return []
