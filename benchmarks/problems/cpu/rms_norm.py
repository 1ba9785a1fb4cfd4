"""RMSNorm over the last dimension: y = x / sqrt(mean(x^2) + eps) * weight.

Where: before attention and before the feed-forward block of Llama-style language models.
Size: 512 tokens (one chunk of a prompt) of width 2048 (a 1-billion-parameter model served on CPU); 4 MiB in,
4 MiB out: larger than L2, about the size of a shared L3 slice.
"""

import torch
import torch.nn.functional as F

tokens = 512
hidden = 2048
eps = 1e-6

CASES = {"tuned": {"tokens": 512}, "decode_batch": {"tokens": 16}, "ragged_chunk": {"tokens": 193}}


class Model(torch.nn.Module):
    """RMSNorm written out, as model code commonly has it."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(1.0 + 0.1 * torch.randn(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (tokens, hidden) float32."""
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


class Library(Model):
    """The same through torch's own operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


REFERENCES = {"library": Library}


def get_inputs():
    return [torch.randn(tokens, hidden)]


def get_init_inputs():
    return [hidden, eps]
