"""MapId: replace each raw id by its position plus one in a sorted table, 0 when it is not there.

Where: preprocessing of recommendation models (hashed categorical ids to rows of an embedding table).
Size: 10000 ids of a request batch against a vocabulary of 5000, about half of them known. Ids are hashes of 40
bits, as feature stores deliver them, so that a dense table by id is no option.
"""

import torch

batch = 10000
vocabulary = 5000

CASES = {"tuned": {"batch": 10000}, "small": {"batch": 777}, "large": {"batch": 50000}}


def hash_ids(numbers: torch.Tensor) -> torch.Tensor:
    """Multiplicative hash of small numbers to 40 bits; no two of the first 2^40 collide."""
    return (numbers * 2654435761) % 2**40


class Model(torch.nn.Module):
    """Search, then look whether the found entry is the id itself."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.register_buffer("mapping", hash_ids(torch.arange(1, vocabulary + 1)).sort().values)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """values: (batch,) int64 -> (batch,) int64."""
        index = torch.bucketize(values, self.mapping).clamp(max=self.mapping.numel() - 1)
        hit = self.mapping.gather(0, index) == values
        return torch.where(hit, index + 1, 0)


class RightSearch(Model):
    """The entry before the right end of the run of equal ones; needs no clamp at the top."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        position = torch.searchsorted(self.mapping, values, right=True)
        return position * (self.mapping[position - 1] == values)


REFERENCES = {"right_search": RightSearch}


def get_inputs():
    return [hash_ids(torch.randint(1, 2 * vocabulary + 1, (batch,)))]


def get_init_inputs():
    return [vocabulary]
