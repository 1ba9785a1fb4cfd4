"""Names and paths in a candidate's source: what a dotted name means, and what runs at import or within `forward`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
ENTRIES = frozenset(("forward", "__call__"))
"""Methods that a call of the model runs."""
_LOADERS = frozenset(("importlib.import_module", "__import__"))


class SourcePaths:
    """A module's imports, functions, and who calls whom by name. Dynamic calls are not followed."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.imported: dict[str, str] = {}
        """Local names of modules, and of what was imported from them, with what they stand for."""
        self.functions: dict[str, list[ast.AST]] = {}
        """Functions and methods by their own name; classes by theirs."""
        self.methods: list[ast.AST] = []
        self._refers: dict[str, set[str]] = {}
        """Module variables with the functions that their values mention without calling them."""
        self.own: set[str] = set()
        """Names that the module binds itself, other than by import."""
        self._collect()
        body = [s for s in tree.body if not _is_main(s)]
        self.skipped = {id(node) for s in tree.body if _is_main(s) for node in ast.walk(s)}
        """Nodes of `if __name__ == "__main__"`, which an import does not run."""
        entries = [m for m in self.methods if getattr(m, "name", "") in ENTRIES]
        self.forward = self._closure(entries)
        """Nodes that may run within a call of the model."""
        self.called = self._closure(self.methods)
        """Nodes that may run in any method, once a model is built."""
        at_import: list[ast.AST] = [s for s in body if not isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef)]
        self.live = self._closure([*at_import, *self.methods]) | self.forward
        """Nodes that may run at all: at import, in any method, or called from there."""

    def dotted(self, node: ast.AST) -> str:
        """What an expression names, such as "torch.backends.cudnn"; empty when it is nothing that was imported."""
        if isinstance(node, ast.Name):
            return self.imported.get(node.id, "" if node.id in self.own else f"builtins.{node.id}")
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            return f"{base}.{node.attr}" if base else ""
        if isinstance(node, ast.Call):
            called, first = self.dotted(node.func), node.args[0] if node.args else None
            constant = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
            if called.removeprefix("builtins.") in _LOADERS and constant:
                return constant
            if called == "builtins.getattr" and len(node.args) > 1 and first is not None:
                name, base = node.args[1], self.dotted(first)
                return f"{base}.{name.value!s}" if base and isinstance(name, ast.Constant) else ""
            if called == "builtins.vars" and first is not None:
                return self.dotted(first) + ".__dict__"
        if isinstance(node, ast.Subscript) and self.dotted(node.value) == "sys.modules":
            return str(node.slice.value) if isinstance(node.slice, ast.Constant) else ""
        return ""

    def _collect(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    self.imported[name.asname or name.name.partition(".")[0]] = (
                        name.name if name.asname else name.name.partition(".")[0])
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for name in node.names:
                    self.imported[name.asname or name.name] = f"{node.module}.{name.name}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.functions.setdefault(node.name, []).append(node)
                self.own.add(node.name)
                if isinstance(node, ast.ClassDef):
                    self.methods += [m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]
            elif isinstance(node, ast.arg):
                self.own.add(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.own.add(node.id)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                self._assigned(node)
        self.own -= self.imported.keys()

    def _assigned(self, node: ast.Assign) -> None:
        """Follow `t = torch` and `IMPLEMENTATIONS = [fast, slow]`."""
        meant = self.dotted(node.value) if isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript
                                                     | ast.Call) else ""
        called = {id(n.func) for n in ast.walk(node.value) if isinstance(n, ast.Call)}
        mentioned = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name) and id(n) not in called}
        for target in node.targets:
            if not isinstance(target, ast.Name):
                continue
            if meant and not meant.startswith("builtins."):
                self.imported.setdefault(target.id, meant)
            self._refers.setdefault(target.id, set()).update(mentioned & self.functions.keys())

    def _closure(self, start: Iterable[ast.AST]) -> set[int]:
        """Ids of all nodes below these and below every function that they mention by name."""
        found: set[int] = set()
        waiting = list(start)
        while waiting:
            for node in _walk(waiting.pop()):
                if id(node) in found:
                    continue
                found.add(id(node))
                for name in self._mentions(node):
                    waiting += [f for f in self.functions.get(name, []) if id(f) not in found]
        return found

    def _mentions(self, node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
            yield from self._refers.get(node.id, ())
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (
                node.value.id in ("self", "cls") or node.value.id in self.functions):
            yield node.attr


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below, with the bodies of nested functions, without those of functions at module level."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _is_main(node: ast.stmt) -> bool:
    return (isinstance(node, ast.If) and isinstance(node.test, ast.Compare)
            and isinstance(node.test.left, ast.Name) and node.test.left.id == "__name__")
