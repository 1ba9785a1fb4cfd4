# expect: launch_error at check
# problem: softmax_large
"""A block of 1024 threads that need two hundred registers each."""
import ctypes

import torch

CUDA = ctypes.CDLL("libcuda.so.1")
COUNT = 200
LINES = [f"ld.volatile.global.f32 %f{i}, [%rd1 + {4 * i}];" for i in range(COUNT)]
# The last number that was loaded is needed first, so that all of them must be held.
LINES += ["mov.f32 %f999, %f0;"] + [f"fma.rn.f32 %f999, %f999, %f999, %f{i};" for i in reversed(range(COUNT))]
PTX = """
.version 7.0
.target sm_75
.address_size 64
.visible .entry hoard(.param .u64 source)
{
    .reg .b64 %rd<2>;
    .reg .f32 %f<1000>;
    ld.param.u64 %rd1, [source];
    LINES
    st.global.f32 [%rd1], %f999;
    ret;
}
""".replace("LINES", "\n".join(LINES))


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


HOARD = load(PTX, "hoard")


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        launch(HOARD, 1, 1024, 0, y.data_ptr())
        return y
