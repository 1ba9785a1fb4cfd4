"""Rotary position embedding of queries and keys (half-split form), with the angles gathered by position.

Where: attention of Llama-style models, for a prompt or for a batch of sequences at different positions.
Size: 128 tokens, 32 query heads and 4 key heads of width 64 (a 1.1-billion-parameter model with grouped queries);
1.1 MiB in, 1.1 MiB out, angles for 2048 positions.
"""

import torch

tokens = 128
query_heads = 32
key_heads = 4
head_dim = 64
positions = 2048

CASES = {"tuned": {"tokens": 128}, "decode_batch": {"tokens": 8}, "odd_chunk": {"tokens": 301}}


class Model(torch.nn.Module):
    """As model code commonly writes it: x * cos + rotate_half(x) * sin."""

    def __init__(self, head_dim: int, positions: int) -> None:
        super().__init__()
        frequency = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        angle = torch.outer(torch.arange(positions, dtype=torch.float64), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos().float())
        self.register_buffer("sin", angle.sin().float())

    def forward(self, q: torch.Tensor, k: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """q: (query_heads, tokens, head_dim), k: (key_heads, tokens, head_dim) float32; position: (tokens,) int64."""
        cos, sin = self.cos[position], self.sin[position]
        return q * cos + self.rotate_half(q) * sin, k * cos + self.rotate_half(k) * sin

    @staticmethod
    def rotate_half(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)


class Halves(Model):
    """Each half on its own, with half of the table: fewer passes over memory."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = q.shape[-1] // 2
        cos, sin = self.cos[position, :half], self.sin[position, :half]
        return self.rotate(q, cos, sin), self.rotate(k, cos, sin)

    @staticmethod
    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


REFERENCES = {"halves": Halves}


def get_inputs():
    return [
        torch.randn(query_heads, tokens, head_dim),
        torch.randn(key_heads, tokens, head_dim),
        torch.randint(0, positions, (tokens,)),
    ]


def get_init_inputs():
    return [head_dim, positions]
