"""Focal loss per image: the sum over anchors and classes of a weighted binary cross-entropy on logits.

Where: validation of one-stage object detectors.
Size: 2 images, 3000 anchors of 80 classes (a 256 x 256 input); 1.8 MiB of logits and as much of targets (0 or 1).
"""

import torch
import torch.nn.functional as F

images = 2
anchors = 3000
classes = 80
alpha = 0.25

CASES = {"tuned": {"images": 2, "anchors": 3000}, "batch_of_eight": {"images": 8}, "few_anchors": {"anchors": 111}}


class Model(torch.nn.Module):
    """From the definition: alpha_t * (1 - p_t)^2 * cross-entropy."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """logits, target: (images, anchors, classes) float32 -> (images,)."""
        probability = torch.sigmoid(logits)
        cross_entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        p_t = probability * target + (1 - probability) * (1 - target)
        alpha_t = alpha * target + (1 - alpha) * (1 - target)
        return (alpha_t * (1 - p_t) ** 2 * cross_entropy).sum(dim=(1, 2))


class Signed(torch.nn.Module):
    """One sign per element: cross-entropy is softplus(-s x), 1 - p_t is sigmoid(-s x)."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        away = logits * (1 - 2 * target)
        weight = (1 - alpha) + (2 * alpha - 1) * target
        return (weight * torch.sigmoid(away).square() * F.softplus(away)).sum(dim=(1, 2))


REFERENCES = {"signed": Signed}


def get_inputs():
    return [
        torch.randn(images, anchors, classes) - 2.0,
        (torch.rand(images, anchors, classes) < 0.02).float(),
    ]


def get_init_inputs():
    return []
