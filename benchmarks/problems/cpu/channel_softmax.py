"""Softmax over the channels of an image: dimension 1 of 4, so that neighbours in a softmax are a plane apart.

Where: class probabilities per pixel in semantic segmentation.
Size: 21 classes (Pascal VOC) on a 160 x 160 map, one image; 2.1 MB in, 2.1 MB out.
"""

import torch

batch = 1
classes = 21
side = 160

CASES = {"tuned": {"batch": 1, "side": 160}, "odd_image": {"side": 97}, "batch_of_three": {"batch": 3, "side": 64}}


class Model(torch.nn.Module):
    """Torch's own softmax."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """logits: (batch, classes, side, side) float32."""
        return torch.softmax(logits, dim=1)


class WrittenOut(torch.nn.Module):
    """Elementwise operations and reductions, which a compiler can fuse."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        weights = (logits - logits.amax(dim=1, keepdim=True)).exp()
        return weights / weights.sum(dim=1, keepdim=True)


REFERENCES = {"written_out": WrittenOut}


def get_inputs():
    return [2.0 * torch.randn(batch, classes, side, side)]


def get_init_inputs():
    return []
