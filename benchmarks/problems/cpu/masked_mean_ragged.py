"""Mean over the valid part of each padded row; what lies behind a row's length does not count.

Where: pooling of token embeddings into a sentence embedding, or of a user's history in recommendation.
Size: 64 texts of up to 128 tokens, width 256, lengths from 1 to 128; 8 MiB with the padding, about half of it valid.
"""

import torch

batch = 64
longest = 128
width = 256

CASES = {"tuned": {"batch": 64, "longest": 128}, "single": {"batch": 1},
         "short_histories": {"batch": 200, "longest": 20}}


class Model(torch.nn.Module):
    """Mask, sum, divide."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """x: (batch, longest, width) float32, lengths: (batch,) int64 from 1 to longest -> (batch, width)."""
        valid = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
        total = torch.where(valid.unsqueeze(-1), x, 0.0).sum(dim=1)
        return total / lengths.unsqueeze(-1)


class MatrixProduct(torch.nn.Module):
    """The mask as weights of a batched matrix-vector product: one pass over x."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        valid = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
        weights = valid.to(x.dtype) / lengths.unsqueeze(1).to(x.dtype)
        return torch.bmm(weights.unsqueeze(1), x).squeeze(1)


class Selected(torch.nn.Module):
    """Only the valid rows are read, then summed by text."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        valid = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
        rows = torch.arange(x.shape[0]).repeat_interleave(lengths)
        total = torch.zeros(x.shape[0], x.shape[2], dtype=x.dtype).index_add_(0, rows, x[valid])
        return total / lengths.unsqueeze(-1)


REFERENCES = {"matrix_product": MatrixProduct, "selected": Selected}


def get_inputs():
    return [torch.randn(batch, longest, width), torch.randint(1, longest + 1, (batch,))]


def get_init_inputs():
    return []
