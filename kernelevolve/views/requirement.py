"""Optional packages: imported where they are used, and named with their install line when missing."""

from __future__ import annotations

import importlib
from typing import Any

from kernelevolve import errors


def require(module: str, extra: str = "lab") -> Any:
    """Import `module`, or raise MissingDependencyError with the install line of the `extra` that brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if error.name and error.name.partition(".")[0] != package:
            raise
        raise errors.MissingDependencyError(
            f"this needs the package {package!r}, which is not installed; "
            f'install it with: pip install "kernelevolve[{extra}]"'
        ) from error
