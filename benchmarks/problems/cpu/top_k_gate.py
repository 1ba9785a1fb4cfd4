"""Top-k gate: softmax over experts, keep the k largest, renormalise; weights and expert numbers are returned.

Where: router of mixture-of-experts language models.
Size: 1024 tokens, 64 experts, k = 6; 256 KiB in. Logits within a row differ by at least 0.05, so that rounding never
decides which expert is chosen.
"""

import torch

tokens = 1024
experts = 64
k = 6

CASES = {"tuned": {"tokens": 1024}, "decode_batch": {"tokens": 13}, "long_prompt": {"tokens": 4000}}


class Model(torch.nn.Module):
    """In the order of the definition."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """logits: (tokens, experts) float32 -> weights (tokens, k) float32, expert (tokens, k) int64, best first."""
        weights, expert = torch.softmax(logits, dim=-1).topk(self.k, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), expert


class SelectFirst(Model):
    """The same numbers from a softmax over the k chosen logits alone."""

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen, expert = logits.topk(self.k, dim=-1)
        return torch.softmax(chosen, dim=-1), expert


REFERENCES = {"select_first": SelectFirst}


def get_inputs():
    rank = torch.rand(tokens, experts).argsort(dim=-1)
    return [0.1 * rank - 3.2 + 0.05 * torch.rand(tokens, experts)]


def get_init_inputs():
    return [k]
