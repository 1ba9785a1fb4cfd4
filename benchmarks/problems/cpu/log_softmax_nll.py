"""Log-softmax over a vocabulary and the negative log-likelihood of one entry per row.

Where: scoring text with a language model (perplexity filters, reranking), per token.
Size: 128 tokens against a vocabulary of 16384 (a small subword vocabulary); 8 MiB of logits, read once at best.
"""

import torch
import torch.nn.functional as F

tokens = 128
vocabulary = 16384

CASES = {"tuned": {"tokens": 128}, "short": {"tokens": 9}, "other_vocabulary": {"vocabulary": 5003}}


class Model(torch.nn.Module):
    """Log-softmax, then pick."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """logits: (tokens, vocabulary) float32, target: (tokens,) int64 -> (tokens,) float32."""
        return -torch.log_softmax(logits, dim=-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)


class CrossEntropy(torch.nn.Module):
    """Torch's own loss."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, target, reduction="none")


class LogSumExp(torch.nn.Module):
    """Without the full table of log-probabilities."""

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(logits, dim=-1) - logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)


REFERENCES = {"cross_entropy": CrossEntropy, "logsumexp": LogSumExp}


def get_inputs():
    return [3.0 * torch.randn(tokens, vocabulary), torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return []
