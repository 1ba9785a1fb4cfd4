"""Which harness measured: two results are comparable only when the code that measured them is the same."""

from __future__ import annotations

import functools
import hashlib
from importlib import metadata
from pathlib import Path

_FOLDERS = ("evaluation", "languages", "platforms", "workers")
"""What takes part in a measurement."""


@functools.cache
def version() -> str:
    """The package's version with a hash of every source file that takes part in a measurement."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    try:
        number = metadata.version("kernelevolve")
    except metadata.PackageNotFoundError:
        number = "unknown"
    return f"{number}+{digest.hexdigest()[:12]}"
