"""Softmax over the last dimension.

Where: attention probabilities when a model is run without a fused attention kernel (scores need to be kept).
Size: 8 heads x 256 queries x 256 keys, an encoder (BERT-small) on one text of 256 tokens; scores have the spread of
trained attention (standard deviation 2). 2 MiB in, 2 MiB out.
"""

import torch

heads = 8
queries = 256
keys = 256

CASES = {
    "tuned": {"queries": 256, "keys": 256},
    "short_text": {"queries": 48, "keys": 48},
    "odd_length": {"queries": 131, "keys": 131},
}


class Model(torch.nn.Module):
    """Softmax written out with the maximum subtracted."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        """scores: (heads, queries, keys) float32."""
        shifted = scores - scores.amax(dim=-1, keepdim=True)
        weights = shifted.exp()
        return weights / weights.sum(dim=-1, keepdim=True)


class Library(torch.nn.Module):
    """The same through torch's own operator."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores, dim=-1)


REFERENCES = {"library": Library}


def get_inputs():
    return [2.0 * torch.randn(heads, queries, keys)]


def get_init_inputs():
    return []
