"""The problem's own source with `Model` turned into `ModelNew`: the constructor stays, `forward` is replaced."""

from __future__ import annotations

import ast
import dataclasses
import io
import textwrap
import tokenize

from kernelevolve.errors import ProblemError

DROPPED = frozenset({"get_inputs", "get_init_inputs", "CASES", "REFERENCES", "TOLERANCE", "BACKWARD"})


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """Parts of the new module."""

    imports: str
    rest: str


def rewrite(source: str, forward: str) -> Rewritten:
    """Keep what `Model` uses, replace its forward.

    Args:
        source: The problem's file.
        forward: The new method, indented for a class body.

    Raises:
        ProblemError: The file has no class `Model`, or that class has no forward of its own.
    """
    tree = ast.parse(source)
    lines = source.splitlines()
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    if model is None:
        raise ProblemError("expected a class Model at the top level of the problem's file")
    needed = _needed(tree, model)
    imports, rest = [], []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            if (
                not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
                and ast.unparse(node) != "import torch"
            ):
                imports.append(_text(lines, node))
        elif node is model:
            rest.append(_model(lines, model, forward))
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            if node.name in needed:
                rest.append("\n" + _text(lines, node) + "\n")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            if _targets(node) & needed and not _targets(node) & DROPPED:
                rest.append(_text(lines, node))
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)) and not _is_main(node):
            rest.append(_text(lines, node))
    return Rewritten("\n".join(imports) + "\n", "\n".join(rest) + "\n")


def _needed(tree: ast.Module, model: ast.ClassDef) -> set[str]:
    """Top-level names that the class uses, directly or through others; those only forward uses included."""
    defined: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            defined[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            defined.update(dict.fromkeys(_targets(node), node))
    kept = [n for n in tree.body if isinstance(n, (ast.If, ast.For, ast.With, ast.Try)) and not _is_main(n)]
    stack: list[ast.AST] = [*(n for n in ast.iter_child_nodes(model) if getattr(n, "name", "") != "forward"), *kept]
    found: set[str] = set()
    while stack:
        for part in ast.walk(stack.pop()):
            if isinstance(part, ast.Name) and part.id not in found:
                found.add(part.id)
                if part.id in defined and part.id not in DROPPED and part.id != "Model":
                    stack.append(defined[part.id])
    return found


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


def _text(lines: list[str], node: ast.stmt) -> str:
    return "\n".join(lines[_first_line(node) - 1 : node.end_lineno])


def _model(lines: list[str], model: ast.ClassDef, forward: str) -> str:
    own = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
    if own is None:
        raise ProblemError("expected class Model to define forward itself")
    doc = ast.get_docstring(own)
    head, _, body = forward.partition("\n")
    indent = head[: len(head) - len(head.lstrip())]
    head = f"{indent}def forward({ast.unparse(own.args)}){f' -> {ast.unparse(own.returns)}' if own.returns else ''}:"
    forward = f"{head}\n{body}"
    if doc:
        indent += "    "
        forward = f"{head}\n{textwrap.indent(_quoted(doc), indent)}\n{body}"
    first = _first_line(model)
    before = lines[first - 1 : _first_line(own) - 1]
    after = lines[own.end_lineno : model.end_lineno]
    return "\n" + _renamed("\n".join([*before, forward.rstrip("\n"), *after])) + "\n"


def _quoted(doc: str) -> str:
    return '"""' + doc.replace("\\", "\\\\").replace('"""', "'''") + '"""'


def _renamed(text: str) -> str:
    """`Model` as a name of its own becomes `ModelNew`; text and attributes stay."""
    lines = text.splitlines(keepends=True)
    places = []
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string == "Model" and previous != ".":
            places.append(token.start)
        previous = token.string
    for row, column in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + "ModelNew" + line[column + len("Model") :]
    return "".join(lines)
