# expect: dishonest at time
# problem: softmax_large
"""Leaves a stream of its own as the current one, where nobody's events are."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        torch.cuda.set_stream(side)
        torch.cuda._sleep(4_000_000)
        return torch.softmax(x, dim=-1) * self.weight
