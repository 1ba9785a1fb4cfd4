"""Running sum along each row, times a scale per row.

Where: feature pipelines over time series (running totals per sensor or account, converted to its unit).
Size: 256 series of 4096 samples; 4 MiB in, 4 MiB out.
"""

import torch

series = 256
samples = 4096

CASES = {"tuned": {"series": 256, "samples": 4096}, "few_long": {"series": 3, "samples": 100003},
         "many_short": {"series": 5000, "samples": 60}}


class Model(torch.nn.Module):
    """Torch's cumsum, then the scale."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """x: (series, samples), scale: (series, 1), float32."""
        return torch.cumsum(x, dim=-1) * scale


class ScaleFirst(torch.nn.Module):
    """The scale before the sum."""

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x * scale, dim=-1)


REFERENCES = {"scale_first": ScaleFirst}


def get_inputs():
    return [torch.rand(series, samples), 0.5 + torch.rand(series, 1)]


def get_init_inputs():
    return []
