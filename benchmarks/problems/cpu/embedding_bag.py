"""Embedding bag: the sum of the table rows that each bag's indices name.

Where: sparse features of recommendation models, the largest consumer of memory bandwidth in them.
Size: a table of 200000 rows of width 64 (51 MB, beyond most caches), 2048 bags of 20 rows on average, drawn as skewed
as popularity is: a batch of requests in one feature.
"""

import torch
import torch.nn.functional as F

rows = 200000
width = 64
bags = 2048
indices_total = 40960

CASES = {"tuned": {"bags": 2048, "indices_total": 40960}, "one_request": {"bags": 16, "indices_total": 320},
         "long_bags": {"bags": 64, "indices_total": 12000}}


class Model(torch.nn.Module):
    """Torch's own operator."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(rows, width))

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """indices: (indices_total,) int64, offsets: (bags,) int64, first index of each bag -> (bags, width) float32."""
        return F.embedding_bag(indices, self.table, offsets, mode="sum")


def get_inputs():
    share = torch.rand(bags) + 0.1
    lengths = torch.bincount(torch.multinomial(share, indices_total, replacement=True), minlength=bags)
    popularity = torch.rand(indices_total).pow(3)
    return [(popularity * rows).long(), lengths.cumsum(0) - lengths]


def get_init_inputs():
    return [rows, width]
