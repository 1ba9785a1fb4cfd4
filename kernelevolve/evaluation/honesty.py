"""Reads a candidate's source before anything of it runs, for what no honest kernel has a use for.

It finds what is written plainly, and says so early with the line; what is hidden is for the judge to find by what it
does. So a rule is fatal only where an honest kernel loses nothing by it, and all else is a remark.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator

from kernelevolve.evaluation.native_text import PROC, is_native, read_native
from kernelevolve.evaluation.source_paths import SourcePaths

MAX_CHARACTERS = 4_000_000
"""A longer source is not read."""
MAX_FINDINGS = 30

_FRAMES = frozenset((
    "sys._getframe", "sys._current_frames", "sys.settrace", "sys.setprofile", "sys.addaudithook", "inspect.stack",
    "inspect.currentframe", "inspect.getouterframes", "inspect.getinnerframes", "inspect.trace", "gc.get_objects",
    "gc.get_referrers", "gc.get_referents", "ctypes.pythonapi", "traceback.walk_stack", "sys.modules.values",
    "sys.modules.items", "sys.modules.keys", "sys.modules.copy",
))
_FRAME_ATTRIBUTES = frozenset(("tb_frame", "f_back", "f_globals", "f_locals", "gi_frame", "cr_frame", "__globals__",
                               "__code__", "__closure__", "__subclasses__", "pythonapi"))
_MODES = frozenset(("_get_current_dispatch_mode", "_get_current_dispatch_mode_stack", "_len_torch_dispatch_stack",
                    "_len_torch_function_stack", "_get_current_function_mode", "_get_current_function_mode_stack"))
_STATE = frozenset((
    "torch.set_default_dtype", "torch.set_default_device", "torch.set_default_tensor_type", "torch.set_num_threads",
    "torch.set_num_interop_threads", "torch.manual_seed", "torch.seed", "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all", "torch.random.manual_seed", "torch.set_rng_state",
    "torch.set_float32_matmul_precision",
    "torch.use_deterministic_algorithms", "torch.set_flush_denormal", "torch.set_deterministic_debug_mode",
    "torch.autograd.set_detect_anomaly", "random.seed", "numpy.random.seed",
    "torch.cuda.set_per_process_memory_fraction",
    "torch.backends.cuda.preferred_linalg_library", "torch.backends.cuda.enable_flash_sdp",
))
_UNUSUAL = frozenset(("os.chdir", "os.umask", "signal.signal", "signal.setitimer", "signal.alarm", "atexit.register",
                      "resource.setrlimit", "ctypes.PyDLL"))
_DYNAMIC = frozenset(("builtins.exec", "builtins.eval", "builtins.compile", "marshal.loads", "marshal.load",
                      "pickle.loads", "pickle.load", "cloudpickle.loads", "dill.loads", "base64.b64decode",
                      "base64.b85decode", "base64.a85decode", "base64.b32decode", "base64.decodebytes",
                      "base64.standard_b64decode", "base64.urlsafe_b64decode", "types.CodeType", "types.FunctionType",
                      "code.interact"))
_ELSEWHERE = ("threading.", "_thread.", "multiprocessing.", "torch.multiprocessing.", "concurrent.", "asyncio.",
              "torch.futures.", "torch.jit.fork", "torch.jit._fork", "os.fork", "os.spawn", "os.posix_spawn", "pty.")
_HARMLESS = ("threading.Lock", "threading.RLock", "threading.local", "threading.get_ident", "threading.current_thread",
             "multiprocessing.cpu_count", "torch.multiprocessing.cpu_count")
_PROGRAMS = ("subprocess.", "os.system", "os.popen", "os.exec")
_FILES = frozenset(("builtins.open", "io.open", "os.open", "torch.load", "torch.save", "numpy.load", "numpy.save",
                    "numpy.fromfile", "numpy.memmap", "torch.from_file", "mmap.mmap", "torch.UntypedStorage.from_file"))
_FILE_METHODS = frozenset(("read_text", "read_bytes", "write_text", "write_bytes"))
_BUILDS = re.compile(r"build|compile|load|_lib|library|module|ext|kernel|jit|toolchain|cache", re.IGNORECASE)
"""Names of functions in which a module may do what builds do, even when forward is what first asks for it."""
_ENVIRONMENT = frozenset(("os.environ.update", "os.environ.setdefault", "os.environ.pop", "os.environ.clear",
                          "os.putenv", "os.unsetenv"))
_MODULE_TABLE = frozenset(("sys.modules.update", "sys.modules.setdefault", "sys.modules.pop", "sys.modules.clear",
                           "sys.modules.__setitem__"))
_FREE_TARGETS = ("sys.path", "sys.dont_write_bytecode", "warnings.")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing noticed. A fatal one refuses the candidate."""

    kind: str
    line: int
    text: str
    advice: str
    fatal: bool

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.text}" + (f"; {self.advice}" if self.advice else "")


def read(source: str, like: str = "") -> list[Finding]:
    """Findings in a candidate's source, fatal ones first. What the problem's own source (`like`) does too is left out.

    Source that is not Python has none: its import will say what is wrong with it.
    """
    found = _read(source)
    known = {(f.kind, f.text) for f in _read(like)} if like and found else set()
    kept = [f for f in dict.fromkeys(found) if (f.kind, f.text) not in known]
    return sorted(kept, key=lambda f: (not f.fatal, f.line))[:MAX_FINDINGS]


def _read(source: str) -> list[Finding]:
    if len(source) > MAX_CHARACTERS:
        return [Finding("not read", 1, f"a source of {len(source)} characters", "", False)]
    try:
        return list(_Reader(source).findings())
    except (SyntaxError, ValueError):
        return []
    except (RecursionError, MemoryError):
        return [Finding("not read", 1, "nested too deeply", "", False)]


class _Reader:
    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self.paths = SourcePaths(self.tree)
        self.docs = {id(node.body[0].value) for node in ast.walk(self.tree)
                     if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                     and node.body and isinstance(node.body[0], ast.Expr)}
        self.function: dict[int, str] = {}
        """Name of the innermost function around a node."""
        self.memoised: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if any("cache" in ast.unparse(d) for d in node.decorator_list):
                    self.memoised.add(node.name)
                for inner in ast.walk(node):
                    self.function[id(inner)] = node.name

    def findings(self) -> Iterator[Finding]:
        for node in ast.walk(self.tree):
            if id(node) in self.paths.skipped:
                continue
            live = id(node) in self.paths.live
            for kind, text, advice, fatal in self._rules(node):
                yield Finding(kind, getattr(node, "lineno", 1), text, advice, fatal and live)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.docs:
                yield from _string(node, node.value)

    def _rules(self, node: ast.AST) -> Iterator[tuple[str, str, str, bool]]:
        match node:
            case ast.Import() | ast.ImportFrom():
                modules = [n.name for n in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                if any(m.partition(".")[0] == "kernelevolve" for m in modules):
                    yield "imports the evaluator", ", ".join(modules), "a candidate runs without this package", True
            case ast.Try():
                yield from self._try(node)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    called = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
                    if self.paths.dotted(called) == "contextlib.suppress" and self._in_forward(node):
                        yield "swallows errors", _line(item.context_expr), _ADVICE_TRY, True
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Delete() | ast.For() | ast.NamedExpr():
                targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target]
                for target in targets:
                    yield from self._target(target)
            case ast.Attribute():
                yield from self._attribute(node)
            case ast.Name():
                name = self.paths.imported.get(node.id, "")
                if name in _FRAMES:
                    yield "looks around", name, _ADVICE_FRAMES, True
            case ast.Call():
                yield from self._call(node)

    def _in_forward(self, node: ast.AST) -> bool:
        return id(node) in self.paths.forward

    def _builds(self, node: ast.AST) -> bool:
        name = self.function.get(id(node), "")
        return name in self.memoised or (name not in ("forward", "__call__") and bool(_BUILDS.search(name)))

    def _try(self, node: ast.Try) -> Iterator[tuple[str, str, str, bool]]:
        calls = any(isinstance(n, ast.Call) for s in node.body for n in ast.walk(s))
        if not self._in_forward(node) or not calls:
            return
        for handler in node.handlers:
            if not _raises(handler.body):
                caught = f"except {ast.unparse(handler.type)}" if handler.type else "except"
                fatal = not (self._builds(node) and caught == "except ImportError")
                yield "swallows errors", f"{caught} at line {handler.lineno} does not raise again", _ADVICE_TRY, fatal

    def _target(self, target: ast.expr) -> Iterator[tuple[str, str, str, bool]]:
        if isinstance(target, ast.Tuple | ast.List):
            for one in target.elts:
                yield from self._target(one)
        elif isinstance(target, ast.Attribute):
            name = self.paths.dotted(target)
            if name and not name.startswith(_FREE_TARGETS) and not self._own(target):
                fatal = ".config." not in name
                yield "changes another module", name.removeprefix("builtins."), _ADVICE_PATCH, fatal
        elif isinstance(target, ast.Subscript):
            name = self.paths.dotted(target.value)
            if name == "os.environ":
                yield "changes the environment", _line(target), _ADVICE_ENVIRONMENT, self._in_forward(target)
            elif name in ("sys.modules", "builtins.__builtins__") or name.endswith(".__dict__"):
                yield "changes another module", _line(target), _ADVICE_PATCH, True

    def _own(self, target: ast.Attribute) -> bool:
        """Whether the root is a name of the module's own, such as `self`."""
        root: ast.expr = target
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and root.id not in self.paths.imported and root.id != "__builtins__"

    def _attribute(self, node: ast.Attribute) -> Iterator[tuple[str, str, str, bool]]:
        name = self.paths.dotted(node)
        if name in _FRAMES or node.attr in _FRAME_ATTRIBUTES:
            yield "looks around", name if name in _FRAMES else f".{node.attr}", _ADVICE_FRAMES, True
        if node.attr in _MODES:
            yield "asks whether it is watched", f".{node.attr}", "a kernel does the same whoever looks", True

    def _call(self, node: ast.Call) -> Iterator[tuple[str, str, str, bool]]:
        name = self.paths.dotted(node.func)
        first = node.args[0] if node.args else None
        if name in _DYNAMIC:
            yield "hides code", _plain(name), "write the code where it can be read", True
        elif name in ("builtins.__import__", "importlib.import_module") and not isinstance(first, ast.Constant):
            yield "hides an import", _line(node), "name the module", True
        elif name in _STATE:
            yield "changes global state", name, "leave the process as it is", True
        elif name in _UNUSUAL:
            yield "unusual", name, "", False
        elif name.startswith(_ELSEWHERE) and name not in _HARMLESS and id(node) in self.paths.called:
            yield "works elsewhere", name, "all work must be done, in this process, when the call returns", \
                not self._builds(node)
        elif name in ("builtins.setattr", "builtins.delattr", "builtins.object.__setattr__") and first is not None:
            owner = self.paths.dotted(first)
            if owner and not (owner.startswith("builtins.") and owner != "builtins.__builtins__"):
                yield "changes another module", _line(node), _ADVICE_PATCH, True
        elif name.startswith("unittest.mock.patch") or name in _MODULE_TABLE:
            yield "changes another module", _line(node), _ADVICE_PATCH, True
        elif name in _ENVIRONMENT:
            yield "changes the environment", _line(node), _ADVICE_ENVIRONMENT, self._in_forward(node)
        elif self._in_forward(node):
            yield from self._within(node, name)

    def _within(self, node: ast.Call, name: str) -> Iterator[tuple[str, str, str, bool]]:
        """Rules for calls within a call of the model."""
        if name.startswith(_PROGRAMS):
            yield "runs a program", name, "build while the module is imported", not self._builds(node)
        elif name in _FILES or (isinstance(node.func, ast.Attribute) and node.func.attr in _FILE_METHODS):
            text = _plain(name) or f".{node.func.attr}" if isinstance(node.func, ast.Attribute) else _plain(name)
            yield "opens a file", text, "a call reads its arguments only", not self._builds(node)


_ADVICE_TRY = "an error must come out, or else the library may do the work"
_ADVICE_PATCH = "leave other modules as they are"
_ADVICE_ENVIRONMENT = "do so while building, if at all"
_ADVICE_FRAMES = "a kernel reads its arguments only"


def _string(node: ast.Constant, value: str) -> Iterator[Finding]:
    if is_native(value):
        for line, fatal, kind, text, advice in read_native(value):
            yield Finding(kind, node.lineno + line, text[:100], advice, fatal)
        return
    match = PROC.search(value)
    if match:
        yield Finding("reads /proc", node.lineno, value[match.start() : match.start() + 60], _ADVICE_FRAMES, True)


def _raises(body: list[ast.stmt]) -> bool:
    """Whether every way through these statements ends with an exception."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True
    if isinstance(last, ast.If):
        return bool(last.orelse) and _raises(last.body) and _raises(last.orelse)
    if isinstance(last, ast.With):
        return _raises(last.body)
    return isinstance(last, ast.Try) and _raises(last.body) and all(_raises(h.body) for h in last.handlers)


def _line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())[:100]


def _plain(name: str) -> str:
    return name.removeprefix("builtins.")
