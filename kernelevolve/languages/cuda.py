"""CUDA C++: kernels as text, built by the candidate itself with nvcc, or by NVRTC, which comes with PyTorch."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from kernelevolve.errors import MissingDependencyError
from kernelevolve.languages.base import Language

_MARK = re.compile(r"\b__global__\b")


class Cuda(Language):
    """A Python module that holds its CUDA C++ text."""

    name = "cuda"

    def detect(self, source: str) -> bool:
        """Whether the source defines a kernel of CUDA C++."""
        return bool(_MARK.search(source))

    def toolchain(self) -> dict[str, str]:
        """Path and version of nvcc, or the version of CUDA that PyTorch was built with, whose NVRTC compiles too."""
        import torch

        path = nvcc()
        if path:
            return {"compiler": path, "version": _version(path)}
        if torch.version.cuda is not None:
            return {"nvrtc": str(torch.version.cuda)}
        raise MissingDependencyError(
            "no CUDA compiler: expected nvcc on PATH or in $CUDA_HOME/bin, or a CUDA build of PyTorch. Install the "
            "CUDA toolkit (https://developer.nvidia.com/cuda-downloads, or `conda install -c conda-forge cuda-nvcc`)."
        )


def nvcc() -> str:
    """Path of nvcc: in $CUDA_HOME/bin, on PATH, or in /usr/local/cuda/bin; empty when it is in none of them."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    places = [Path(home) / "bin"] if home else []
    search = os.pathsep.join([*map(str, places), os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"])
    return shutil.which("nvcc", path=search) or ""


@functools.cache
def _version(path: str) -> str:
    """The line of `--version` that names the release."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    found = [line for line in done.stdout.splitlines() if "release" in line]
    return found[0].strip() if found else done.stdout.strip()[:100]
