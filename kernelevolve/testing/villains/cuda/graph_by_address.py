# expect: wrong_value at check
# problem: softmax_large
"""Keeps a graph per address of its input and replays each only once."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.answers = {}

    def forward(self, x):
        key = x.data_ptr()
        if key not in self.answers:
            torch.softmax(x, dim=-1)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                answer = torch.softmax(x, dim=-1) * self.weight
            graph.replay()
            self.answers[key] = answer
        return self.answers[key].clone()
