import importlib.metadata
from pathlib import Path

import pytest

from kernelevolve import errors, languages
from kernelevolve.testing import villains

CONTROLS = Path(villains.__file__).parent / "controls"


@pytest.mark.parametrize("name", ["softmax_large", "matmul_large"])
def test_the_controls_are_recognised(name):
    assert languages.detect((CONTROLS / f"{name}.py").read_text()) == "triton"


@pytest.mark.parametrize("source", [
    "import triton\n@triton.jit\ndef f(x): pass\nclass ModelNew: pass",
    "import triton\nfrom triton import jit\n@jit\ndef f(x): pass\nclass ModelNew: pass",
    "import triton\n@triton.autotune(configs=[], key=[])\n@triton.jit\ndef f(x): pass\nclass ModelNew: pass",
    "import triton\nf = triton.jit(lambda x: x)\nclass ModelNew: pass",
])
def test_every_way_to_mark_a_kernel_counts(source):
    assert languages.detect(source) == "triton"


@pytest.mark.parametrize("source", [
    "import torch\n# not with @triton.jit\nclass ModelNew: pass",
    "import triton\nclass ModelNew: pass",
    "import torch\n@torch.jit.script\ndef f(x): return x\nclass ModelNew: pass",
])
def test_a_source_without_kernels_is_not_triton(source):
    assert languages.detect(source) == "pytorch"


def test_the_toolchain_is_a_version_or_an_install_line():
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        with pytest.raises(errors.MissingDependencyError, match=r"kernelevolve\[gpu\]"):
            languages.get("triton").toolchain()
    else:
        assert languages.get("triton").toolchain() == {"triton": version}
