"""Templates that write C++: one file each, one line in TEMPLATES."""

from __future__ import annotations

from kernelevolve.errors import UnknownNameError
from kernelevolve.operators.template.cpp.pointwise import Pointwise
from kernelevolve.operators.template.cpp.rows import Rows
from kernelevolve.operators.template.template import Template

TEMPLATES: tuple[Template, ...] = (
    Pointwise(),
    Rows(),
)
"""In the order in which drafts prefer them."""


def get(name: str) -> Template:
    """The template called `name`. Raises UnknownNameError."""
    for template in TEMPLATES:
        if template.name == name:
            return template
    raise UnknownNameError("template", name, [t.name for t in TEMPLATES])
