"""Batch normalisation with stored statistics, residual addition and ReLU.

Where: end of a residual block of a ResNet at inference, when normalisation is not folded into the convolution.
Size: 256 channels of 56 x 56, one image (ResNet-50, first stage); 6.1 MiB in, 3.1 MiB out.
"""

import torch
import torch.nn.functional as F

batch = 1
channels = 256
side = 56
eps = 1e-5

CASES = {"tuned": {"batch": 1, "side": 56}, "odd_image": {"side": 37}, "batch_of_two": {"batch": 2}}


class Model(torch.nn.Module):
    """Torch's batch_norm on stored statistics."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(0.5 + torch.rand(channels))
        self.bias = torch.nn.Parameter(0.2 * torch.randn(channels))
        self.register_buffer("mean", 0.2 * torch.randn(channels))
        self.register_buffer("variance", 0.5 + torch.rand(channels))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """x, residual: (batch, channels, side, side) float32."""
        y = F.batch_norm(x, self.mean, self.variance, self.weight, self.bias, training=False, eps=eps)
        return torch.relu(y + residual)


class Folded(Model):
    """Statistics folded into one scale and one shift per channel."""

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        scale = self.weight * torch.rsqrt(self.variance + eps)
        shift = self.bias - self.mean * scale
        return torch.relu(torch.addcmul(residual + shift.view(-1, 1, 1), x, scale.view(-1, 1, 1)))


REFERENCES = {"folded": Folded}


def get_inputs():
    return [torch.randn(batch, channels, side, side), torch.randn(batch, channels, side, side)]


def get_init_inputs():
    return [channels]
