"""Linear layer with fused epilogue: y = residual + scale * gelu(x W^T + b).

Where: the output half of feed-forward blocks with layer scale (vision transformers, ConvNeXt).
Size: 196 image patches (a 224 x 224 image in 16 x 16 patches) of width 384 (ViT-small).
"""

import torch
import torch.nn.functional as F

tokens = 196
width_in = 384
width_out = 384

CASES = {"tuned": {"tokens": 196}, "two_images": {"tokens": 392}, "odd": {"tokens": 37}}


class Model(torch.nn.Module):
    """Linear, exact GELU, a scale per channel, the residual."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width_in, width_out)
        self.scale = torch.nn.Parameter(0.5 + torch.rand(width_out))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x: (tokens, width_in), residual: (tokens, width_out), float32."""
        return residual + self.scale * F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(tokens, width_in), torch.randn(tokens, width_out)]


def get_init_inputs():
    return [width_in, width_out]
