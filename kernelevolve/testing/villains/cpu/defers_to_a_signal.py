# expect: wrong_value at check
"""Returns at once and leaves an alarm set, whose handler computes in the runner's time."""
import signal

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        signal.signal(signal.SIGALRM, lambda *_: y.copy_(torch.softmax(x, dim=-1) * self.weight))
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        return y
