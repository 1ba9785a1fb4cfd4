"""Versions of what a measurement depends on, read without importing it."""

from __future__ import annotations

import platform
from importlib import metadata

_PACKAGES = ("kernelevolve", "torch", "triton", "numpy", "duckdb")


def versions() -> dict[str, str]:
    """Version by package name, Python's own included; what is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
