"""A problem's identity survives what does not change its code, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelevolve.problems.code_hash import code_hash

SOURCE = '''\
"""A docstring."""
import torch

size = 4  # elements


class Model(torch.nn.Module):
    """Docstring of the class,

    over several lines with ünïcode."""

    def forward(self, x):
        """One line."""
        mark = "# no comment"
        return x * size, mark


def get_inputs(): return [torch.randn(size)]
'''
COMMENT = st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), max_size=30)


@given(st.lists(st.tuples(st.integers(0, 40), COMMENT, st.integers(0, 3)), max_size=8))
def test_comments_and_blank_lines_do_not_change_it(additions: list[tuple[int, str, int]]) -> None:
    lines = SOURCE.split("\n")
    in_docstring = {0, 1, 7, 8, 9, 10}
    for at, text, blank in additions:
        position = at % (len(SOURCE.split("\n")))
        if position not in in_docstring:
            lines[position] += f"  # {text}" + "\n" * blank
    changed = "\n".join(lines)
    ast.parse(changed)
    assert code_hash(changed) == code_hash(SOURCE)


@given(COMMENT.filter(lambda s: "\\" not in s and '"' not in s))
def test_docstrings_do_not_change_it(text: str) -> None:
    assert code_hash(SOURCE.replace("A docstring.", text).replace("One line.", text + " ")) == code_hash(SOURCE)


@pytest.mark.parametrize("change", [
    lambda s: s.replace("    ", "\t"),
    lambda s: s.replace("\n", "\r\n"),
    lambda s: s.replace(" * ", "*"),
    lambda s: s.replace('"""A docstring."""\n', ""),
])
def test_white_space_and_absent_docstrings_do_not_change_it(change: Callable[[str], str]) -> None:
    assert code_hash(change(SOURCE)) == code_hash(SOURCE)


@pytest.mark.parametrize(("old", "new"), [
    ("size = 4", "size = 5"), ("x * size", "x + size"), ("# no comment", "# a comment"),
])
def test_code_changes_it(old: str, new: str) -> None:
    assert code_hash(SOURCE.replace(old, new)) != code_hash(SOURCE)


def test_it_is_the_md5_of_the_bare_text() -> None:
    import hashlib

    assert code_hash("def f():\n    r'''doc'''\n    return 1\n") == hashlib.md5(b"deff():rreturn1").hexdigest()
    assert code_hash("a = 1  # one\n'''doc'''\n") == hashlib.md5(b"a=1").hexdigest()
