"""What of the machine a sandbox shows, read-only: enough for Python, torch, this package and the compilers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_EXTRAS = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/nix/store",
    "/opt/rocm", "/opt/cuda", "/opt/nvidia", "/sys/devices", "/sys/bus/pci", "/sys/class/kfd", "/sys/class/drm",
    "/sys/module/nvidia", "/sys/module/nvidia_uvm", "/sys/module/amdgpu",
)
_TOOLKITS = ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "HIP_PATH")
_PACKAGES = ("torch", "numpy", "triton")


def readable() -> list[Path]:
    """Folders and files, none inside another. `/lib` and its like are left out where they are links; see `links`."""
    package = Path(__file__).parents[2]
    wanted = [Path(p) for p in (*_SYSTEM, *_EXTRAS) if Path(p) not in links()]
    wanted += [Path(sys.prefix), Path(sys.base_prefix), package]
    # Packages may be a user's own (~/.local), outside of both prefixes. The folder that holds them is shown.
    specs = (importlib.util.find_spec(name) for name in _PACKAGES)
    wanted += [Path(spec.origin).parents[1] for spec in specs if spec is not None and spec.origin is not None]
    wanted += [Path(p) for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    wanted += [Path(os.environ[name]) for name in _TOOLKITS if os.environ.get(name)]
    # A compiler outside of /usr has its other parts beside its bin.
    named = [os.environ[name] for name in ("CC", "CXX", "CUDAHOSTCXX") if os.environ.get(name)]
    tools = (shutil.which(name) for name in (*named, "cc", "gcc", "g++", "clang", "clang++", "nvcc", "hipcc"))
    homes = [Path(tool).resolve().parents[1] for tool in tools if tool is not None]
    wanted += [path for path in homes if not Path.home().is_relative_to(path)]
    # What a link points to is needed under that name too: a virtual environment's python is a link.
    wanted += [path.resolve() for path in wanted]
    python = Path(sys.executable)
    if python.is_symlink():
        wanted.append(python.resolve().parents[1])
    found: list[Path] = []
    for path in sorted({p for p in wanted if p.is_absolute() and p.exists() and p != Path("/")}):
        if not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return found


def links() -> dict[Path, str]:
    """Links of the root folder to be made again: on most systems `/lib` is one into `/usr`."""
    return {path: str(path.readlink()) for path in map(Path, _SYSTEM) if path.is_symlink()}


def devices() -> list[Path]:
    """Nodes and folders of accelerators; a candidate has to open them."""
    found = sorted(Path("/dev").glob("nvidia*"))
    return found + [path for path in map(Path, ("/dev/kfd", "/dev/dri", "/dev/dxg")) if path.exists()]
