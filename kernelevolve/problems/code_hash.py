"""A problem's identity: the MD5 of its code without docstrings, comments and white space.

This is KernelBench's rule, so that a problem keeps its identity when it is reformatted or explained better.
"""

from __future__ import annotations

import ast
import hashlib
import io
import tokenize


def code_hash(source: str) -> str:
    """MD5 of the code, 32 hexadecimal digits. `source` must compile (SyntaxError otherwise)."""
    # The lines that the tokenizer and ast count: a form feed or U+2028 ends none.
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    lines = source.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    cuts: list[tuple[int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            cuts.append((starts[token.start[0] - 1] + token.start[1], starts[token.end[0] - 1] + token.end[1]))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            start = _offset(lines, starts, node.lineno, node.col_offset)
            # A prefix (r"""…""") stays, as in KernelBench's own hashes.
            start += len(source[start:]) - len(source[start:].lstrip("rRuU"))
            cuts.append((start, _offset(lines, starts, node.end_lineno or 0, node.end_col_offset or 0)))
    kept, at = [], 0
    for start, end in sorted(cuts):
        if end > at:
            kept.append(source[at:start])
            at = end
    kept.append(source[at:])
    # White space goes inside string literals too: the rule speaks of text, not of tokens.
    return hashlib.md5("".join("".join(kept).split()).encode(), usedforsecurity=False).hexdigest()


def _offset(lines: list[str], starts: list[int], line: int, column_bytes: int) -> int:
    """Position in the text; ast counts columns in UTF-8 bytes."""
    return starts[line - 1] + len(lines[line - 1].encode()[:column_bytes].decode())
