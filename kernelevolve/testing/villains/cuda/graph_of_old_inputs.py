# expect: wrong_value at check
# problem: softmax_large
"""Replays a graph that was captured on a copy of the first input."""
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.given = x.clone()
            self.compute()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.answer = self.compute()
            self.graph = graph
        self.graph.replay()
        return self.answer.clone()

    def compute(self):
        return torch.softmax(self.given, dim=-1) * self.weight
