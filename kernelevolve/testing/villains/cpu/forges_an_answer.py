# expect: wrong_value at check
"""Answers the judge's question itself, in the right form, and computes nothing."""
import json
import os
import stat

import torch


def send(body):
    """Write one message to every socket that this process holds."""
    for fd in range(3, 256):
        if os.path.exists(f"/dev/fd/{fd}") and stat.S_ISSOCK(os.fstat(fd).st_mode):
            os.write(fd, len(body).to_bytes(8, "little") + body)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        leaf = {"type": "Tensor", "dtype": "float32", "shape": list(x.shape), "device": "cpu", "overlaps": False,
                "kept": False, "start": 0}
        send(json.dumps({"tree": {"tensor": 0}, "leaves": [leaf], "ns": 1000}).encode())
        return torch.zeros_like(x)
