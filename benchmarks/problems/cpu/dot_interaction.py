"""Pairwise dot products of feature embeddings, the part below the diagonal: a batch of small matrix products.

Where: interaction layer of DLRM-style recommendation models.
Size: a batch of 256, 27 features (26 sparse and one dense, as in the Criteo data), width 64; 1.7 MiB in, 0.35 MiB out.
"""

import torch

batch = 256
features = 27
width = 64

CASES = {"tuned": {"batch": 256}, "one_request": {"batch": 1}, "odd": {"batch": 101}}


class Model(torch.nn.Module):
    """All products, then the pairs that count."""

    def __init__(self, features: int) -> None:
        super().__init__()
        pairs = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("first", pairs[0].clone())
        self.register_buffer("second", pairs[1].clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, features, width) float32 -> (batch, features * (features - 1) / 2)."""
        products = torch.bmm(x, x.transpose(1, 2))
        return products[:, self.first, self.second]


class FlatSelect(Model):
    """The pairs by one index into the flattened products."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        products = torch.bmm(x, x.transpose(1, 2)).flatten(1)
        return products.index_select(1, self.first * x.shape[1] + self.second)


REFERENCES = {"flat_select": FlatSelect}


def get_inputs():
    return [torch.randn(batch, features, width)]


def get_init_inputs():
    return [features]
