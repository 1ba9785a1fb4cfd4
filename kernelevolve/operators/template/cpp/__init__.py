"""Templates that write C++: one file each, one line in TEMPLATES."""

from __future__ import annotations

from kernelevolve.errors import UnknownNameError
from kernelevolve.operators.template.cpp.columns import Columns
from kernelevolve.operators.template.cpp.conv import Conv
from kernelevolve.operators.template.cpp.matmul import MatMul
from kernelevolve.operators.template.cpp.pointwise import Pointwise
from kernelevolve.operators.template.cpp.pool import Pool
from kernelevolve.operators.template.cpp.ragged import Compact
from kernelevolve.operators.template.cpp.repeat import Repeat
from kernelevolve.operators.template.cpp.rows import Rows
from kernelevolve.operators.template.cpp.scan import Scan
from kernelevolve.operators.template.cpp.segment import Segment
from kernelevolve.operators.template.cpp.topk import TopK
from kernelevolve.operators.template.template import Template

TEMPLATES: tuple[Template, ...] = (
    Pointwise(),
    Rows(),
    Columns(),
    Scan(),
    MatMul(),
    Conv(),
    Pool(),
    TopK(),
    Compact(),
    Repeat(),
    Segment(),
)
"""In the order in which drafts prefer them."""


def get(name: str) -> Template:
    """The template called `name`. Raises UnknownNameError."""
    for template in TEMPLATES:
        if template.name == name:
            return template
    raise UnknownNameError("template", name, [t.name for t in TEMPLATES])
