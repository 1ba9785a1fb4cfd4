"""What to make fast: problem files in KernelBench's format, checked in a worker before any search.

`load` turns a name or a path into a `records.Problem`; `suite` and `suites` list what there is. The format,
the checks and the rules behind `weak` and `bytes_min` are told in `load.py`, `check.py` and `traffic.py`.
"""

from kernelevolve.problems.load import load, suite, suites

__all__ = ["load", "suite", "suites"]
