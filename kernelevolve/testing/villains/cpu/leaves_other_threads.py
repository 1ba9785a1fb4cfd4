# expect: dishonest at source
# runtime: dishonest at check
"""Changes the number of threads of everybody's operators."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        torch.set_num_threads(torch.get_num_threads() + 3)
        return torch.softmax(x, dim=-1) * self.weight
