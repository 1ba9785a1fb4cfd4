"""What the reading of a source refuses, and the many honest sources in which it must find nothing fatal."""

import json
import random
from pathlib import Path

import pytest

from kernelevolve import errors, problems
from kernelevolve.evaluation import Evaluator, honesty
from kernelevolve.operators.template import genome as genomes
from kernelevolve.operators.template import module
from kernelevolve.operators.template.capture import capture
from kernelevolve.operators.template.operator import covered
from kernelevolve.records import Status
from kernelevolve.testing import villains
from tests.evaluation.problems import ADD, ADD_NEW, QUICK, problem, proposal
from tests.operators.build import FACTS, graph_of, problem_of

ROOT = Path(__file__).parents[2]
MODEL = """
import contextlib, ctypes, gc, importlib, inspect, os, subprocess, sys, threading, time
import torch
from torch import nn
import torch.nn.functional as F
{top}
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}
        return x
"""


def source(top="", init="pass", forward="pass"):
    return MODEL.format(top=top, init=init, forward=forward)


def fatal(text, like=""):
    return [f for f in honesty.read(text, like) if f.fatal]


FORWARD = [
    ("try: y = fast(x)\n        except Exception: y = x", "swallows errors"),
    ("try: y = fast(x)\n        except RuntimeError as e:\n            print(e)", "swallows errors"),
    ("try: y = fast(x)\n        except RuntimeError:\n            if x.numel(): raise", "swallows errors"),
    ("with contextlib.suppress(Exception): fast(x)", "swallows errors"),
    ("threading.Thread(target=print).start()", "works elsewhere"),
    ("os.fork()", "works elsewhere"),
    ("subprocess.run(['true'])", "runs a program"),
    ("os.system('true')", "runs a program"),
    ("open('x').read()", "opens a file"),
    ("torch.load('x')", "opens a file"),
    ("os.environ['A'] = '1'", "changes the environment"),
    ("torch.backends.cuda.matmul.allow_tf32 = True", "changes another module"),
    ("torch.set_default_dtype(torch.float64)", "changes global state"),
    ("torch.manual_seed(0)", "changes global state"),
    ("sys._getframe(1)", "looks around"),
    ("inspect.currentframe()", "looks around"),
    ("gc.get_objects()", "looks around"),
    ("ctypes.pythonapi.PyThreadState_Get()", "looks around"),
    ("eval('x')", "hides code"),
    ("path = '/proc/self/mem'", "reads /proc"),
    ("getattr(torch, 'set_num_threads')(1)", "changes global state"),
    ("torch.utils._python_dispatch._get_current_dispatch_mode()", "asks whether it is watched"),
]
TOP = [
    ("torch.equal = lambda a, b: True", "changes another module"),
    ("t = torch\nt.allclose = print", "changes another module"),
    ("F.softmax = print", "changes another module"),
    ("from torch import Tensor\nTensor.copy_ = print", "changes another module"),
    ("setattr(time, 'perf_counter', print)", "changes another module"),
    ("sys.modules['time'] = None", "changes another module"),
    ("__builtins__['print'] = None", "changes another module"),
    ("import builtins\nbuiltins.print = None", "changes another module"),
    ("torch.__dict__['equal'] = print", "changes another module"),
    ("importlib.import_module('torch').equal = print", "changes another module"),
    ("def patch(m):\n    torch.equal = m\npatch(1)", "changes another module"),
    ("for m in sys.modules.values(): pass", "looks around"),
    ("import base64\nexec(base64.b64decode('cGFzcw=='))", "hides code"),
    ("import marshal, pickle\npickle.loads(b'')", "hides code"),
    ("name = 'to' + 'rch'\n__import__(name)", "hides an import"),
    ("import kernelevolve", "imports the evaluator"),
    ("def f():\n    return f.__globals__\nf()", "looks around"),
]
NATIVE = [
    ("int main() { return system(\"rm x\"); }", "runs a program"),
    ("void f() { if (fork() == 0) work(); }", "starts a process"),
    ("void f() { FILE* s = fopen(\"/proc/self/maps\", \"r\"); }", "reads /proc"),
    ("void f() { std::thread t(work); t.detach(); }", "detaches a thread"),
    ("void f() { void* h = dlopen(\"libtorch_cpu.so\", 1); }", "opens PyTorch's or Python's library"),
    ("void f() { PyRun_SimpleString(\"x\"); }", "runs Python from native code"),
]


@pytest.mark.parametrize(("text", "kind"), FORWARD)
def test_what_forward_must_not_do_is_found_with_its_line(text, kind):
    found = fatal(source(forward=text))
    assert kind in [f.kind for f in found], honesty.read(source(forward=text))
    assert source(forward=text).splitlines()[found[0].line - 1].strip()


@pytest.mark.parametrize(("text", "kind"), FORWARD[:10])
def test_it_is_found_in_a_helper_that_forward_calls_too(text, kind):
    helper = "def helper(x):\n    def inner():\n        " + text + "\n    return inner()\nCALLS = {'a': helper}\n"
    found = fatal(source(top=helper, forward="CALLS['a'](x)"))
    assert kind in [f.kind for f in found]


@pytest.mark.parametrize(("text", "kind"), TOP)
def test_what_no_module_must_do_is_found(text, kind):
    assert kind in [f.kind for f in fatal(source(top=text))]


@pytest.mark.parametrize(("text", "kind"), NATIVE)
def test_native_text_is_read_too_its_comments_excepted(text, kind):
    code = "CODE = r'''\n#include <cmath>\n{}\n'''\n"
    assert kind in [f.kind for f in fatal(source(top=code.format(text)))]
    assert not honesty.read(source(top=code.format("// " + text)))


HONEST = {
    "build at import": "def build():\n    p = subprocess.run(['g++'])\n    open('a.cpp', 'w').write('')\n"
                       "    if p.returncode: raise RuntimeError\nbuild()",
    "a flag for a package": "try:\n    import triton\n    HAVE = True\nexcept ImportError:\n    HAVE = False",
    "environment while building": "os.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'",
    "seeds in functions that nobody calls": "def get_inputs():\n    torch.manual_seed(0)\n    return []",
    "a main block": "if __name__ == '__main__':\n    torch.manual_seed(0)\n    eval('1')",
    "a joined thread in C++": "C = '''\n#include <thread>\nvoid f() { std::thread t(g); t.join(); }\n'''",
    "names like those of Python": "def compile(x):\n    return x\ncompile(1)\nimport re\nre.compile('a')",
    "what a processor can do": "FLAGS = Path = '/proc/cpuinfo'",
    "attributes of its own": "class Lib: pass\nlib = Lib()\nlib.f = 1\nlib.f.argtypes = [ctypes.c_void_p]",
    "a search path": "sys.path.insert(0, '.')\nsys.path = sys.path[:]",
    "a table of text": "x = torch.zeros(1).detach()\nC = '''\n#include <torch/extension.h>\nx.detach();\n'''",
}
HONEST_FORWARD = {
    "errors with more words": "try: y = f(x)\n        except OSError as e:\n            raise ValueError from e",
    "errors that are logged": "try: y = f(x)\n        except OSError as e:\n            print(e)\n            raise",
    "a table looked up": "try: y = self.table[x.shape]\n        except KeyError: y = None",
    "a clean-up": "try: y = fast(x)\n        finally: pass",
    "a guard": "if not x.is_contiguous(): x = x.contiguous()",
    "a training switch": "self.eval()",
}


@pytest.mark.parametrize("name", HONEST)
def test_what_honest_modules_do_is_not_refused(name):
    assert not fatal(source(top=HONEST[name])), fatal(source(top=HONEST[name]))


@pytest.mark.parametrize("name", HONEST_FORWARD)
def test_what_honest_calls_do_is_not_refused(name):
    assert not fatal(source(forward=HONEST_FORWARD[name]))


TRITON = '''
import torch
import torch.nn as nn
try:
    import triton
    import triton.language as tl
    HAS_TRITON = True
except ImportError:
    HAS_TRITON = False

@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (512, 1024) for w in (4, 8)], key=["n"])
@triton.jit
def softmax_kernel(x, y, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + offsets, mask=offsets < n, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * stride + offsets, values / tl.sum(values, axis=0), mask=offsets < n)

def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[lambda meta: (x.shape[0],)](x, y, x.stride(0), x.shape[1])
    return y

class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x.contiguous())
'''
LOAD_INLINE = '''
import os
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
__global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda(), "expected a CUDA tensor");
    auto c = torch::empty_like(a);
    add<<<(a.numel() + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.numel());
    return c;
}
"""
os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
_module = None

def get_module():
    global _module
    if _module is None:
        _module = load_inline("add", cpp_sources="torch::Tensor run(torch::Tensor a, torch::Tensor b);",
                              cuda_sources=CUDA, functions=["run"], verbose=False)
    return _module

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.work = torch.cuda.Stream() if torch.cuda.is_available() else None
    def forward(self, a, b):
        return get_module().run(a, b)
'''


@pytest.mark.parametrize("text", [TRITON, LOAD_INLINE, *map(villains.good_source, ("softmax", "matmul"))])
def test_typical_candidates_are_not_refused(text):
    assert {f.kind for f in honesty.read(text)} <= {"changes the environment"}
    assert not fatal(text)


def test_kernels_in_the_notebooks_have_none():
    cells = ["".join(cell["source"]) for path in (ROOT / "notebooks").glob("*.ipynb")
             for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert not [f for cell in cells if "ModelNew" in cell for f in honesty.read(cell) if f.fatal]


OPERATORS = {
    "rows": ("return torch.softmax(x, -1) * x", "torch.randn(16, 64)"),
    "columns": ("return torch.softmax(x, 0)", "torch.randn(64, 16)"),
    "pointwise": ("return F.gelu(x) + 1", "torch.randn(64, 64)"),
    "scan": ("return torch.cumsum(x, -1)", "torch.randn(16, 64)"),
    "matmul": ("return x @ x.T", "torch.randn(64, 64)"),
    "conv": ("return F.conv2d(x, x[:1].expand(4, -1, -1, -1)[..., :3, :3])", "torch.randn(2, 3, 16, 16)"),
    "pool": ("return F.max_pool2d(x, 2)", "torch.randn(2, 3, 16, 16)"),
    "top_k": ("return torch.topk(x, 4)", "torch.randn(16, 64)"),
}


def emitted(found_problem, graph, drafts=8):
    for genome in genomes.drafts(graph, FACTS, random.Random(0))[:drafts]:
        yield module.write(found_problem.source, found_problem.id, graph, genome).source


@pytest.mark.parametrize("name", OPERATORS)
def test_sources_of_every_template_family_have_no_findings(name):
    one = problem_of(*OPERATORS[name])
    texts = list(emitted(one, graph_of(one)))
    assert texts
    assert [honesty.read(text, one.source) for text in texts] == [[] for _ in texts]


def test_sources_for_every_shipped_problem_have_no_findings():
    count = 0
    for name in problems.suite("cpu"):
        one = problems.load(name)
        try:
            graph = covered(capture(one, timeout_s=60), one.id)
        except errors.NotCoveredError:
            continue
        for text in emitted(one, graph, drafts=4):
            assert honesty.read(text, one.source) == [], name
            count += 1
    assert count > 40


def test_what_the_problem_itself_does_is_no_finding():
    text = source(init="torch.manual_seed(0)")
    assert fatal(text)
    assert not fatal(text, like=text.replace("ModelNew", "Model"))


@pytest.mark.parametrize("text", ["def f(:", "\0", "x = " + "(" * 5000, "", "é" * 100, "x = " + "-" * 100_000 + "1"])
def test_any_text_can_be_read(text):
    assert not [f for f in honesty.read(text) if f.fatal]


def test_the_evaluator_refuses_with_the_line_before_anything_runs_and_keeps_remarks():
    candidate = ADD_NEW.replace("return", "torch.set_num_threads(1)\n        return")
    stages = []
    with Evaluator(problem(ADD), settings=QUICK, on_stage=lambda *s: stages.append((s[0], s[2]))) as e:
        result = e.evaluate(proposal(candidate))
        assert result.status is Status.DISHONEST
        assert "line 6: changes global state: torch.set_num_threads" in result.detail
        assert stages == [("source", "dishonest")]
        remark = e.evaluate(proposal("import ctypes, signal\nsignal.signal(1, signal.SIG_IGN)\n" + ADD_NEW))
        assert remark.correct, remark.detail
        assert "signal.signal" in remark.findings[0]
