"""Bad candidates, one act each, with the status that evaluation must give them.

Each file in `cpu/` is a candidate for the problem in `problem.py`. Its first line names its status, such as
`# expect: crashed`; `good.py` is the control, which must be measured after each of them as if nothing had happened.
Shipped, so that anyone can run them on their own machine before trusting a verdict made there.
"""

import dataclasses
from pathlib import Path

from kernelevolve.records import Status

_HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Villain:
    """A bad candidate."""

    name: str
    source: str
    expect: Status
    stage: str
    """Stage at which it must be caught: "build", "check" or "time"; empty when that does not matter."""


def problem_source() -> str:
    """The problem that all of them pretend to solve: a scaled softmax over rows, 64 x 256, float32."""
    return (_HERE / "problem.py").read_text()


def good_source() -> str:
    """The control: an honest candidate."""
    return (_HERE / "good.py").read_text()


def load(platform: str = "cpu") -> list[Villain]:
    """Every villain of a platform, by name."""
    found = []
    for path in sorted((_HERE / platform).glob("*.py")):
        source = path.read_text()
        words = source.partition("\n")[0].removeprefix("# expect:").split()
        found.append(Villain(path.stem, source, Status(words[0]), words[2] if len(words) > 2 else ""))
    return found
