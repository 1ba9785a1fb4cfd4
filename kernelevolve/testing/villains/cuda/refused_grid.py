# expect: launch_error at check
# problem: softmax_large
"""Asks the driver for a grid without blocks."""
import ctypes

import torch

CUDA = ctypes.CDLL("libcuda.so.1")
PTX = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry touch(.param .u64 target)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [target];
    mov.u32 %r1, 0;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""


def call(name, *arguments):
    """A function of the driver; raises with CUDA's name for the error."""
    result = getattr(CUDA, name)(*arguments)
    if result:
        text = ctypes.c_char_p()
        CUDA.cuGetErrorName(result, ctypes.byref(text))
        raise RuntimeError(f"{name}: {text.value.decode()}")


def load(ptx, name):
    torch.zeros(1, device="cuda")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), ptx.encode())
    call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    return function


def launch(function, grid, block, shared, *pointers):
    values = [ctypes.c_uint64(p) for p in pointers]
    array = (ctypes.c_void_p * max(len(values), 1))(*[ctypes.addressof(v) for v in values])
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, stream, array, None)


TOUCH = load(PTX, "touch")


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        launch(TOUCH, 0, 32, 0, y.data_ptr())
        return y
