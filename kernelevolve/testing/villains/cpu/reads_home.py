# expect: runtime_error at check
# level: bubblewrap
"""Lists the user's home folder, by the name that the system knows it by."""
import os
import pwd

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        if not os.listdir(pwd.getpwuid(os.getuid()).pw_dir):
            raise LookupError("an empty home")
        return torch.softmax(x, dim=-1) * self.weight
