"""Dynamic quantisation to int8 with one scale per row, and back to float.

Where: activations before an int8 matrix product; this round trip is how its accuracy is simulated.
Size: 256 tokens of width 2048; 2 MiB in, 2 MiB out.
"""

import torch

tokens = 256
width = 2048

CASES = {"tuned": {"tokens": 256}, "decode": {"tokens": 1}, "odd_chunk": {"tokens": 99}}


class Model(torch.nn.Module):
    """Largest magnitude, scale, round to nearest even, scale back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (tokens, width) float32."""
        scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / 127.0
        return (x / scale).round().clamp(-127, 127) * scale


class Library(torch.nn.Module):
    """Torch's fake quantisation with the row as channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.abs().amax(dim=-1).clamp(min=1e-8) / 127.0
        zero_point = torch.zeros(x.shape[0], dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(x, scale, zero_point, 0, -127, 127)


REFERENCES = {"library": Library}


def get_inputs():
    return [torch.randn(tokens, width)]


def get_init_inputs():
    return []
