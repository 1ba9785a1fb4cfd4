"""A reference model with its float64 twin, and other values for what training changes in it."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import torch


@dataclasses.dataclass
class Weights:
    """A constructed reference model, its float64 twin, and what is needed to build its like elsewhere."""

    seed: int
    init: Any
    """Skeleton of the constructor's arguments."""
    init_leaves: list[torch.Tensor]
    model: Any
    twin: Any
    state: dict[str, torch.Tensor]
    """What is loaded into the candidate after construction, as a checkpoint would be."""
    build: int = 0
    """Which construction these belong to."""
    version: int = 0
    """Which values: no two of a build are alike."""
    refreshed: bool = False
    """Whether these are other values than those that the model was built and loaded with."""


def state_of(model: Any) -> dict[str, torch.Tensor]:
    """Copies of what a checkpoint of the model would hold; nothing for what is no module."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {k: v.detach().clone() for k, v in model.state_dict().items() if isinstance(v, torch.Tensor)}


def trained(model: Any) -> list[torch.Tensor]:
    """What training changes: parameters, and running statistics. Other buffers are constants of the problem."""
    if not isinstance(model, torch.nn.Module):
        return []
    statistics = [b for name, b in model.named_buffers() if name.endswith(("running_mean", "running_var"))]
    return [t for t in (*model.parameters(), *statistics) if t.is_floating_point() and t.numel()]


def renew(tensor: torch.Tensor) -> None:
    """Other values in place: scaled one by one, sorted ones together; zeros everywhere become random."""
    if not bool(torch.isfinite(tensor).all()):
        return
    if not bool(tensor.any()):
        tensor.add_(torch.rand_like(tensor) - 0.5)
    elif bool((tensor == tensor.flatten()[0]).all()) or changeable(tensor):
        tensor.mul_(torch.rand_like(tensor) + 0.5)
    else:
        tensor.mul_(random.uniform(0.5, 1.5))  # noqa: S311 - seeded under a secret seed


def changeable(leaf: torch.Tensor) -> bool:
    """Whether values may be changed one by one: finite floating-point ones that are not in order (boundaries, keys)."""
    if not leaf.is_floating_point() or not leaf.numel() or not bool(torch.isfinite(leaf).all()):
        return False
    rises = leaf.ndim > 0 and leaf.shape[-1] > 2 and bool((leaf.diff(dim=-1) >= 0).all())
    return not rises
