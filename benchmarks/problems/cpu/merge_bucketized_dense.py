"""MergeBucketizedDense: bucketize each dense feature by its own borders and shift it by its offset.

out[f, i] = (number of borders of f that are below values[f, i]) + offsets[f], where offsets[f] counts the
buckets of the features before. A value equal to a border falls left of it.

Where: preprocessing of recommendation models (dense features become categorical ids).
Size: 32 features of 3 to 10 borders, a batch of 2048; 256 KiB in, 512 KiB out.
"""

import torch

features = 32
batch = 2048

CASES = {"tuned": {"batch": 2048}, "small": {"batch": 64}, "odd": {"batch": 777}}


class Model(torch.nn.Module):
    """One bucketize per feature, as preprocessing code has it."""

    def __init__(self, borders: list[list[float]]) -> None:
        super().__init__()
        offset = 0
        offsets = []
        for number, border in enumerate(borders):
            self.register_buffer(f"border{number}", torch.tensor(border))
            offsets.append(offset)
            offset += len(border) + 1
        self.register_buffer("offsets", torch.tensor(offsets))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """values: (features, batch) float32 -> (features, batch) int64."""
        found = [torch.bucketize(row, getattr(self, f"border{f}")) for f, row in enumerate(values.unbind(0))]
        return torch.stack(found) + self.offsets.unsqueeze(1)


class Padded(Model):
    """All features in one search: borders padded with infinity."""

    def __init__(self, borders: list[list[float]]) -> None:
        super().__init__(borders)
        longest = max(len(border) for border in borders)
        padded = [border + [float("inf")] * (longest - len(border)) for border in borders]
        self.register_buffer("padded", torch.tensor(padded))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.searchsorted(self.padded, values) + self.offsets.unsqueeze(1)


class Counted(Padded):
    """No search: compare with every border and count."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return (values.unsqueeze(-1) > self.padded.unsqueeze(1)).sum(-1) + self.offsets.unsqueeze(1)


REFERENCES = {"padded": Padded, "counted": Counted}


def get_inputs():
    return [torch.rand(features, batch)]


def get_init_inputs():
    lengths = [3 + number % 8 for number in range(features)]
    return [[sorted(torch.rand(length).tolist()) for length in lengths]]
