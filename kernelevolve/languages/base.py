"""What a language plug-in does: recognise a source, and turn a file into a module with `ModelNew`."""

from __future__ import annotations

import importlib.util
import os
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from types import ModuleType

BUILD_DIR = "KERNELEVOLVE_BUILD_DIR"
"""Environment variable that names the folder a candidate builds into."""


class Language(ABC):
    """One way to write a candidate. Every candidate is a Python module; the language is what its kernels are in."""

    name: str

    @abstractmethod
    def detect(self, source: str) -> bool:
        """Whether `source` is written in this language."""

    @abstractmethod
    def toolchain(self) -> dict[str, str]:
        """Compilers and versions it needs here. Raises MissingDependencyError, naming the package to install."""

    def load(self, path: Path, build_dir: Path) -> ModuleType:
        """Import the module at `path`; what it builds goes to `build_dir`. Its exceptions come through unchanged."""
        build_dir.mkdir(parents=True, exist_ok=True)
        os.environ[BUILD_DIR] = str(build_dir)
        return import_file(path)


def import_file(path: Path) -> ModuleType:
    """Import the Python file at `path` under its stem, as `import` would, without leaving bytecode beside it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module
