"""One-dimensional convolution, kernel 3, with bias.

Where: front end of speech models (mel bands to model width).
Size: 80 mel bands to 128 channels over 400 frames, 4 seconds of sound, one stream; 25 MFLOP.
"""

import torch

batch = 1
channels_in = 80
channels_out = 128
frames = 400

CASES = {"tuned": {"batch": 1, "frames": 400}, "short": {"frames": 53}, "batch_of_three": {"batch": 3, "frames": 199}}


class Model(torch.nn.Module):
    """Torch's own convolution, padded to keep the length."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv1d(channels_in, channels_out, kernel_size=3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, channels_in, frames) float32 -> (batch, channels_out, frames)."""
        return self.conv(x)


class MatrixProduct(Model):
    """Three shifted copies of the input side by side and one matrix product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(x, (1, 1))
        columns = padded.unfold(2, 3, 1).permute(0, 1, 3, 2).reshape(x.shape[0], -1, x.shape[2])
        return self.conv.weight.flatten(1) @ columns + self.conv.bias.unsqueeze(1)


REFERENCES = {"matrix_product": MatrixProduct}


def get_inputs():
    return [torch.randn(batch, channels_in, frames)]


def get_init_inputs():
    return [channels_in, channels_out]
