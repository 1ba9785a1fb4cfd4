import pytest

from kernelevolve import errors, languages
from kernelevolve.languages import cuda

SOURCE = 'TEXT = r"""\nextern "C" __global__ void f(float* y) { y[threadIdx.x] = 1; }\n"""\nclass ModelNew: pass'


def test_cuda_is_told_from_cpp_by_its_kernels():
    assert languages.detect(SOURCE) == "cuda"
    assert languages.detect(SOURCE.replace("__global__ ", "")) == "cpp"


def test_the_compiler_is_found_where_cuda_home_says(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "nvcc"
    tool.write_text("#!/bin/sh\necho 'NVIDIA (R) Cuda compiler driver'\necho 'Cuda compilation tools, release 13.0'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert languages.get("cuda").toolchain() == {
        "compiler": str(tool), "version": "Cuda compilation tools, release 13.0"}


def test_without_nvcc_the_compiler_inside_pytorch_serves(monkeypatch):
    monkeypatch.setattr(cuda, "nvcc", lambda: "")
    monkeypatch.setattr("torch.version.cuda", "13.0")
    assert languages.get("cuda").toolchain() == {"nvrtc": "13.0"}


def test_without_any_compiler_the_toolkit_is_named(monkeypatch):
    monkeypatch.setattr(cuda, "nvcc", lambda: "")
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(errors.MissingDependencyError, match="CUDA toolkit"):
        languages.get("cuda").toolchain()
