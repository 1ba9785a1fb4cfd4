"""Whether anybody reads an output: several operators return positions that most models drop."""

from __future__ import annotations

from typing import Any

from kernelevolve.operators.template.lower.builder import Builder


def is_unused(b: Builder, name: str) -> bool:
    """Whether no captured call reads `name` and forward does not return it."""
    places = [b.captured["outputs"], *(node["args"] for node in b.captured["nodes"])]
    return not any(_mentions(place, name) for place in places)


def _mentions(place: Any, name: str) -> bool:
    if isinstance(place, dict):
        return place.get("ref") == name or any(_mentions(v, name) for v in place.values())
    return isinstance(place, list) and any(_mentions(v, name) for v in place)
