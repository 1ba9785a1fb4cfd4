"""Plain PyTorch: a candidate whose work is done by library operators."""

from __future__ import annotations

import importlib.metadata
import platform

from kernelevolve.languages.base import Language


class PyTorch(Language):
    """The language of everything that no other plug-in recognises."""

    name = "pytorch"

    def detect(self, source: str) -> bool:
        """Whether the source is a module with `ModelNew` at all."""
        return "ModelNew" in source

    def toolchain(self) -> dict[str, str]:
        """Python and torch."""
        return {"python": platform.python_version(), "torch": importlib.metadata.version("torch")}
