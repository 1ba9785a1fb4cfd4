"""Reads the C++ (or CUDA) text inside a candidate's source: a few words that no kernel needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LOOKS_NATIVE = re.compile(r'#\s*include\b|extern\s+"C"|__global__')
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
PROC = re.compile(r"/proc(?:/(?!cpuinfo\b|meminfo\b)|$)")
"""A file of other processes' or of one's own process; what the machine is may be read."""

_RULES: tuple[tuple[re.Pattern[str], bool, str, str], ...] = tuple((re.compile(p), fatal, kind, advice) for (
    p, fatal, kind, advice) in (
    (r"/proc/(?!cpuinfo\b|meminfo\b)", True, "reads /proc", "a kernel reads its arguments only"),
    (r"\bv?fork\s*\(|\bposix_spawnp?\s*\(|\bclone3?\s*\(\s*[&\w]+\s*,\s*\w+\s*\+", True, "starts a process",
     "a kernel works in the process that calls it"),
    (r"(?<![\w.>:])(?:std\s*::\s*)?system\s*\(|\bpopen\s*\(|\bexec[lv]p?e?\s*\(", True, "runs a program",
     "build while the module is imported, from Python"),
    (r"\bptrace\s*\(|\bprocess_vm_(?:read|write)v\b", True, "reaches into another process",
     "a kernel reads its arguments only"),
    (r"\bPyRun_\w+|\bPyImport_\w+|\bPyEval_\w+|\bpy(?:bind11)?::module_?::import\b|\bpy(?:bind11)?::(?:exec|eval)\b",
     True, "runs Python from native code", "call what is needed from forward, where it can be read"),
    (r"\bdlopen\s*\([^;)]*(?:libtorch|libpython|libaten)", True, "opens PyTorch's or Python's library",
     "write the operator, or leave it in forward"),
    (r"\bpthread_detach\s*\(|\bstd\s*::\s*thread\b[^;]*\.\s*detach\s*\(", True, "detaches a thread",
     "all work must be done when the call returns: join every thread"),
    (r"\bsigaction\s*\(|(?<![\w.>:])signal\s*\(\s*SIG|\bsetitimer\s*\(|\batexit\s*\(", True,
     "installs a handler", "a kernel needs none"),
    (r"\bLD_PRELOAD\b", True, "names LD_PRELOAD", "a kernel needs none"),
    (r"\bstd\s*::\s*j?thread\b|\bpthread_create\s*\(|\bstd\s*::\s*async\b", False, "starts threads",
     "joined before the call returns, that is honest"),
    (r"\bdlopen\s*\(|\bdlsym\s*\(", False, "opens a library", ""),
    (r"\bcblas_\w+|\bmkl_\w+|\bdnnl\w*::|\bcublas\w+\s*\(|\bcudnn\w+\s*\(|\brocblas_\w+|\bmiopen\w+\s*\(", False,
     "calls a library of kernels", ""),
    (r"\b(?:at|torch)::(?!Tensor\b|empty\w*|zeros\w*|k[A-Z]|ScalarType|TensorOptions|Device|IntArrayRef|detail|cuda\b|"
     r"NoGradGuard|parallel_for|get_num_threads|native\b|nullopt|optional|ArrayRef|Half|BFloat16|dtype|indexing)\w+"
     r"\s*\(", False, "calls PyTorch's operators", ""),
))
_THREAD = re.compile(r"\bstd\s*::\s*thread\s+(\w+)\s*[({;=]")


def is_native(text: str) -> bool:
    """Whether a string constant looks like C++ or CUDA."""
    return bool(_LOOKS_NATIVE.search(text))


def read_native(text: str) -> Iterator[tuple[int, bool, str, str, str]]:
    """Line within the text, whether it is fatal, kind, the words found and advice, for each rule that matches."""
    code = _COMMENT.sub(_blank, text)
    for pattern, fatal, kind, advice in _RULES:
        match = pattern.search(code)
        if match:
            yield code.count("\n", 0, match.start()), fatal, kind, match[0].strip(), advice
    for match in _THREAD.finditer(code):
        left = re.search(rf"\b{match[1]}\s*\.\s*detach\s*\(", code)
        if left:
            yield (code.count("\n", 0, left.start()), True, "detaches a thread", left[0],
                   "all work must be done when the call returns: join every thread")


def _blank(match: re.Match[str]) -> str:
    """A string stays; a comment becomes its line ends."""
    return match[0] if match[0].startswith('"') else "\n" * match[0].count("\n")
