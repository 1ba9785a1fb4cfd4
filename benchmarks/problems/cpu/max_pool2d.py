"""Max pooling, window 3 x 3, stride 2, padding 1.

Where: after the first convolution of a ResNet.
Size: 64 channels of 112 x 112, one image; 3.1 MiB in, 0.8 MiB out.
"""

import torch
import torch.nn.functional as F

batch = 1
channels = 64
side = 112

CASES = {"tuned": {"batch": 1, "side": 112}, "odd_image": {"side": 75}, "batch_of_four": {"batch": 4}}


class Model(torch.nn.Module):
    """Torch's own pooling."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels, side, side) float32."""
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(batch, channels, side, side)]


def get_init_inputs():
    return []
