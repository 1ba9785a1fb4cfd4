"""Pooling, interpolation, embedding bags, segments, and choices among equals."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernelevolve.testing.honest.orders import ORDERS, Order, sequential
from kernelevolve.testing.honest.registry import Family

Tensor = torch.Tensor
FAMILY = Family("gathering")
ALL = ("float32", "float64", "float16", "bfloat16")
_AVERAGE = FAMILY.problem("average pooling", "F.avg_pool2d(x, 4)", {"x": "torch.rand(4, 8, s, s)"}, {"s": 32},
                          dtypes=ALL)
_GLOBAL = FAMILY.problem("adaptive pooling", "F.adaptive_avg_pool2d(x, 1)", {"x": "torch.randn(4, 16, s, s)"},
                         {"s": 20})
_MAXIMUM = FAMILY.problem("max pooling", "F.max_pool2d(x, 3, 2, 1)", {"x": "torch.randn(4, 8, s, s)"}, {"s": 32},
                          dtypes=ALL)
_BILINEAR = FAMILY.problem("bilinear", "F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=False)",
                           {"x": "torch.rand(2, 4, s, s)"}, {"s": 16})
_BAG = FAMILY.problem("embedding bag", "F.embedding_bag(i, w, mode='sum')",
                      {"i": "torch.randint(0, rows, (m, n))", "w": "torch.randn(rows, d)"},
                      {"rows": 200, "m": 64, "n": 30, "d": 16})
_BAG_MEAN = FAMILY.problem("embedding bag, mean", "F.embedding_bag(i, w, mode='mean')",
                           {"i": "torch.randint(0, rows, (m, n))", "w": "torch.rand(rows, d)"},
                           {"rows": 200, "m": 64, "n": 30, "d": 16})
_SEGMENTS = FAMILY.problem("segment sum",
                           "torch.zeros(g, d, dtype=x.dtype, device=x.device).index_add(0, s, x)",
                           {"x": "torch.rand(n, d)", "s": "torch.arange(n) * g // n"}, {"n": 640, "d": 8, "g": 20})
_ARGMAX = FAMILY.problem("argmax with ties", "x.argmax(-1)", {"x": "torch.randint(0, 50, (m, n)) / 7"},
                         {"m": 64, "n": 99}, dtypes=("float32", "float64"))
_TOPK = FAMILY.problem("top k", "torch.topk(x, 8, -1)[0]", {"x": "torch.randint(0, 50, (m, n)) / 7"},
                       {"m": 64, "n": 99}, dtypes=ALL)
_MAXPAIR = FAMILY.problem("maximum and place", "tuple(x.max(-1))", {"x": "torch.randn(m, n)"}, {"m": 64, "n": 99},
                          dtypes=ALL)
_SORT = FAMILY.problem("sort", "x.sort(-1)[0]", {"x": "torch.randint(0, 50, (m, n)) / 7"}, {"m": 64, "n": 64},
                       dtypes=ALL)


def _average(x: Tensor, order: Order) -> Tensor:
    return order(x.unfold(2, 4, 4).unfold(3, 4, 4).flatten(-2)) / 16


def _average_by_axis(x: Tensor) -> Tensor:
    rows = sequential(x.unflatten(2, (-1, 4)).transpose(3, 4)) * 0.25
    return sequential(rows.unflatten(3, (-1, 4))) * 0.25


def _maximum_by_axis(x: Tensor) -> Tensor:
    x = F.pad(x, (1, 1, 1, 1), value=-torch.inf)
    return x.unfold(2, 3, 2).amax(-1).unfold(3, 3, 2).amax(-1)


def _bilinear(x: Tensor, by_weights: bool) -> Tensor:
    n = x.shape[-1]
    place = ((torch.arange(2 * n, device=x.device, dtype=x.dtype) + 0.5) / 2 - 0.5).clamp_min(0)
    low = place.long()
    high = (low + 1).clamp_max(n - 1)
    t = place - low
    if by_weights:
        rows = x[..., low, :] * (1 - t).unsqueeze(-1) + x[..., high, :] * t.unsqueeze(-1)
        return rows[..., low] * (1 - t) + rows[..., high] * t
    rows = x[..., low] + (x[..., high] - x[..., low]) * t
    return rows[..., low, :] + (rows[..., high, :] - rows[..., low, :]) * t.unsqueeze(-1)


def _bag_by_counts(i: Tensor, w: Tensor) -> Tensor:
    counts = torch.zeros(i.shape[0], w.shape[0], dtype=w.dtype, device=w.device)
    return counts.scatter_add(1, i, torch.ones_like(i, dtype=w.dtype)) @ w


def _segments(x: Tensor, s: Tensor, order: Order) -> Tensor:
    return torch.stack([order(part.T) for part in x.split(s.bincount().tolist())])


def _first_largest(x: Tensor) -> Tensor:
    best, place = x[..., 0], torch.zeros(x.shape[:-1], dtype=torch.int64, device=x.device)
    for j in range(1, x.shape[-1]):
        larger = x[..., j] > best
        best, place = torch.where(larger, x[..., j], best), torch.where(larger, j, place)
    return place


def _largest_by_tree(x: Tensor) -> Tensor:
    place = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2), value=-torch.inf)
        place = F.pad(place, (0, place.shape[-1] % 2))
        right = x[..., 1::2] > x[..., ::2]
        x, place = torch.maximum(x[..., ::2], x[..., 1::2]), torch.where(right, place[..., 1::2], place[..., ::2])
    return place[..., 0]


def _one_by_one(x: Tensor) -> Tensor:
    found = []
    for _ in range(8):
        place = x.argmax(-1, keepdim=True)
        found.append(x.gather(-1, place))
        x = x.scatter(-1, place, -torch.inf)
    return torch.cat(found, -1)


def _transposition_sort(x: Tensor) -> Tensor:
    x = x.clone()
    for step in range(x.shape[-1]):
        inner = x[..., step % 2: x.shape[-1] - (x.shape[-1] - step % 2) % 2]
        low, high = torch.minimum(inner[..., ::2], inner[..., 1::2]), torch.maximum(inner[..., ::2], inner[..., 1::2])
        inner[..., ::2], inner[..., 1::2] = low, high
    return x


for _name in ("sequential", "pairwise", "lanes4", "split4"):
    _order, _why = ORDERS[_name]
    _AVERAGE.add(_name, lambda x, order=_order: _average(x, order), _why)
    _GLOBAL.add(_name, lambda x, order=_order: order(x.flatten(2))[..., None, None] * (1 / x.shape[-1] ** 2), _why)
    _BAG.add(_name, lambda i, w, order=_order: order(w[i].transpose(-1, -2)), _why)
    _BAG_MEAN.add(_name, lambda i, w, order=_order: order(w[i].transpose(-1, -2)) / i.shape[1], _why)
    _SEGMENTS.add(_name, lambda x, s, order=_order: _segments(x, s, order), _why)
_AVERAGE.add("by axis", _average_by_axis, "rows first, then columns")
_BAG.add("by counts", _bag_by_counts, "counts times the table")
_SEGMENTS.add("one hot", lambda x, s: F.one_hot(s).to(x.dtype).T @ x, "a product with the membership matrix")
_MAXIMUM.add("by axis", _maximum_by_axis, "rows first, then columns: exact")
_BILINEAR.add("weights", lambda x: _bilinear(x, True), "weighted sums, rows first")
_BILINEAR.add("differences", lambda x: _bilinear(x, False), "low + (high - low) t, columns first")
_ARGMAX.add("scan", _first_largest, "first of equals, by a scan")
_ARGMAX.add("tree", _largest_by_tree, "first of equals, by a tree")
_TOPK.add("one by one", _one_by_one, "the largest, eight times")
_TOPK.add("sorted", lambda x: x.sort(-1, descending=True)[0][..., :8], "sorted whole")
_MAXPAIR.add("scan", lambda x: (x.amax(-1), _first_largest(x)), "maximum, and its place by a scan")
_MAXPAIR.add("tree", lambda x: (x.amax(-1), _largest_by_tree(x)), "maximum, and its place by a tree")
_SORT.add("transpositions", _transposition_sort, "odd-even transposition: exact")
