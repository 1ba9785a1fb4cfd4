"""Batch Event Truncate: keep the first events of each user, in every feature of a nested ragged batch.

A user has outer_lengths events; an event has, per feature, inner_lengths values. Of each user's events the first
`limit` stay, with their inner lengths and values, and the outer lengths shrink to at most `limit`.

Where: preprocessing of event histories for sequence models in recommendation.
Size: 100 users with 200 events on average (from a few to several hundred), two features with 2 and 1.5 values per
event, cut to 100. The shapes of the outputs depend on the data.
"""

import torch

users = 100
events = 20000
limit = 100

CASES = {"tuned": {"users": 100, "events": 20000}, "small": {"users": 7, "events": 1001},
         "mostly_short": {"users": 1000, "events": 20000}}


class Model(torch.nn.Module):
    """A mask of events, then one of values per feature."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def kept_events(self, outer_lengths: torch.Tensor, events: int) -> torch.Tensor:
        """(events,) bool: whether an event is among its user's first ones."""
        starts = outer_lengths.cumsum(0) - outer_lengths
        return torch.arange(events) - starts.repeat_interleave(outer_lengths, output_size=events) < self.limit

    def forward(
        self, outer_lengths: torch.Tensor,
        inner_lengths_a: torch.Tensor, values_a: torch.Tensor,
        inner_lengths_b: torch.Tensor, values_b: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """outer_lengths: (users,), inner lengths: (events,), values: (their sum,), all int64; the same order out."""
        keep = self.kept_events(outer_lengths, inner_lengths_a.shape[0])
        keep_a = keep.repeat_interleave(inner_lengths_a, output_size=values_a.shape[0])
        keep_b = keep.repeat_interleave(inner_lengths_b, output_size=values_b.shape[0])
        return (outer_lengths.clamp(max=self.limit), inner_lengths_a[keep], values_a[keep_a],
                inner_lengths_b[keep], values_b[keep_b])


class Searched(Model):
    """The user of an event by binary search, and positions in place of masks."""

    def kept_events(self, outer_lengths: torch.Tensor, events: int) -> torch.Tensor:
        ends = outer_lengths.cumsum(0)
        number = torch.arange(events)
        user = torch.searchsorted(ends, number, right=True)
        return number < (ends - outer_lengths + self.limit)[user]


REFERENCES = {"searched": Searched}


def split(total: int, parts: int) -> torch.Tensor:
    """Uneven random lengths that sum to `total`, so that shapes are the same for every seed."""
    share = torch.rand(parts).pow(2) + 0.01
    return torch.bincount(torch.multinomial(share, total, replacement=True), minlength=parts)


def get_inputs():
    values_a, values_b = 2 * events, 3 * events // 2
    return [
        split(events, users),
        split(values_a, events), torch.randint(0, 1 << 40, (values_a,)),
        split(values_b, events), torch.randint(0, 1 << 40, (values_b,)),
    ]


def get_init_inputs():
    return [limit]
