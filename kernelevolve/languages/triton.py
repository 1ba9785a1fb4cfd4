"""Triton: kernels in Python functions that Triton compiles for the device at their first launch."""

from __future__ import annotations

import importlib.metadata
import re

from kernelevolve.errors import MissingDependencyError
from kernelevolve.languages.base import Language

_MARK = re.compile(r"^\s*@(?:triton\.)?(?:jit|autotune|heuristics)\b|\btriton\.jit\b", re.MULTILINE)
_IMPORT = re.compile(r"^\s*(?:import|from)\s+triton\b", re.MULTILINE)


class Triton(Language):
    """A Python module with `@triton.jit` functions."""

    name = "triton"

    def detect(self, source: str) -> bool:
        """Whether the source imports Triton and marks a function for it."""
        return bool(_IMPORT.search(source) and _MARK.search(source))

    def toolchain(self) -> dict[str, str]:
        """Triton's version. It is not imported here, since that takes a second."""
        try:
            return {"triton": importlib.metadata.version("triton")}
        except importlib.metadata.PackageNotFoundError:
            raise MissingDependencyError(
                'Triton is not installed. Install it with `pip install "kernelevolve[gpu]"`; a CUDA build of PyTorch '
                "brings the version that fits it."
            ) from None
