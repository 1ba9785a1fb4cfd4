"""What a fork server, and so every worker, inherits of the user's environment: a list of what is allowed, and no more.

A list of what is forbidden would miss the next provider's variable. What looks like a secret is left out even where
its prefix is allowed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_NAMES = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_CACHE_HOME", "VIRTUAL_ENV",
    "CONDA_PREFIX", "CONDA_BUILD_SYSROOT", "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH",
    "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "MAX_JOBS",
})
_PREFIXES = (
    "LC_", "PYTHON", "CUDA", "NVIDIA_", "NVCC_", "NCCL_", "HIP_", "ROCR_", "ROCM_", "HSA_", "AMD_", "OMP_", "GOMP_",
    "KMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "MALLOC_", "GLIBC_TUNABLES", "ATEN_", "TORCH", "PYTORCH_",
    "TRITON_", "KERNELEVOLVE_",
)
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH")

_SERVER = {
    # Without these, a call that allocates its output pays page faults that one with a kept buffer does not.
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    # By default a thread that waits at a barrier spins for 5 ms. Where another program wants the core, that turned a
    # 0.6 ms operator into 30 ms; with 2000 turns it takes 1.5 ms there, and the same 0.6 ms on an idle machine.
    "GOMP_SPINCOUNT": "2000",
    # One pool of threads, torch's; numpy's would only be inherited half-dead by the forked children.
    "OPENBLAS_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # PyTorch's question whether there is a device would initialise CUDA in the server, and spoil it for every fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


def allowed(name: str) -> bool:
    """Whether a variable of this name may reach a worker."""
    if any(word in name.upper() for word in _SECRET):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def scrubbed(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a fork server: what is allowed of `environ` (this process's own), and a few fixed."""
    source = os.environ if environ is None else environ
    found = {name: value for name, value in source.items() if allowed(name)} | _SERVER
    found["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return found
