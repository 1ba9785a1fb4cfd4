"""The comment lines at the head of a villain: what it must get, and what it needs for that.

    # expect: STATUS at STAGE          the verdict it must get; "at STAGE" may be left out
    # problem: NAME                    the problem it pretends to solve; softmax when absent
    # level: bubblewrap                its act can only be stopped from this isolation level on
    # runtime: STATUS at STAGE         what it gets when sources are not read (Settings.read_source=False)
    # settings: NAME=VALUE ...         limits it needs, such as folder_bytes=16777216

The first is the file's first line; the others follow it in any order and end at the first line that is no comment.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from kernelevolve.errors import SettingError
from kernelevolve.records import Status
from kernelevolve.settings import Settings

STAGES = ("source", "start", "build", "check", "time")
"""Where a verdict can fall, in the order of an evaluation."""
LEVELS = ("process", "bubblewrap", "container")
"""Isolation levels, weakest first."""
_LINE = re.compile(r"#\s*([A-Za-z_]+)\s*:\s*(.*?)\s*$")
_EXAMPLES = {
    "expect": "# expect: wrong_value at check",
    "problem": "# problem: matmul",
    "level": "# level: bubblewrap",
    "runtime": "# runtime: dishonest at check",
    "settings": "# settings: folder_bytes=16777216 call_timeout_s=5",
}
_NUMBERS = {f.name: f.type for f in dataclasses.fields(Settings) if f.type in ("int", "float")}


@dataclasses.dataclass(frozen=True)
class Header:
    """What a villain's comment lines say."""

    expect: Status
    stage: str = ""
    problem: str = "softmax"
    level: str = "process"
    runtime: Status | None = None
    runtime_stage: str = ""
    settings: Mapping[str, int | float] = dataclasses.field(default_factory=dict)


def parse(text: str, path: str) -> Header:
    """Read the header of a villain's source.

    Args:
        text: The whole file.
        path: Its name, for messages.

    Raises:
        SettingError: A line is malformed; says which, what was expected, and an example.
    """
    lines = text.split("\n")
    found: dict[str, str] = {}
    places: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if number > 1 and not line.startswith("#"):
            break
        match = _LINE.match(line)
        if match is None:
            if number == 1:
                raise _wrong(path, 1, "expect", f"the expected status, which comes first; got {line[:80]!r}")
            continue  # an ordinary comment
        key, value = match[1].lower(), match[2]
        if key not in _EXAMPLES:
            raise _wrong(path, number, "expect", f"one of {', '.join(_EXAMPLES)}; got {key!r}")
        if (key == "expect") != (number == 1):
            raise _wrong(path, number, "expect", "'expect' on the first line, and there alone")
        if key in found:
            raise _wrong(path, number, key, f"each key once; {key!r} stands on line {places[key]} already")
        found[key], places[key] = value, number
    expect, stage = _status(found["expect"], path, 1, "expect")
    # Without a line of its own: the same verdict, but nothing is found in a source that is not read.
    runtime, runtime_stage = expect, "" if stage == "source" else stage
    if "runtime" in found:
        runtime, runtime_stage = _status(found["runtime"], path, places["runtime"], "runtime")
        if runtime_stage == "source":
            raise _wrong(path, places["runtime"], "runtime", "a stage that runs; got 'source', which it leaves out")
    problem = found.get("problem", "softmax")
    if not re.fullmatch(r"\w+", problem):
        raise _wrong(path, places["problem"], "problem", f"a file's name in problems/, without .py; got {problem!r}")
    level = found.get("level", "process")
    if level not in LEVELS:
        raise _wrong(path, places["level"], "level", f"one of {', '.join(LEVELS)}; got {level!r}")
    settings = _settings(found.get("settings"), path, places.get("settings", 0))
    return Header(expect, stage, problem, level, runtime, runtime_stage, settings)


def _status(value: str, path: str, line: int, key: str) -> tuple[Status, str]:
    words = value.split()
    if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "at"):
        raise _wrong(path, line, key, f"STATUS at STAGE, or STATUS alone; got {value!r}")
    if words[0] not in [s.value for s in Status]:
        raise _wrong(path, line, key, f"a status, one of {', '.join(s.value for s in Status)}; got {words[0]!r}")
    stage = words[2] if len(words) == 3 else ""
    if stage and stage not in STAGES:
        raise _wrong(path, line, key, f"a stage, one of {', '.join(STAGES)}; got {stage!r}")
    return Status(words[0]), stage


def _settings(value: str | None, path: str, line: int) -> dict[str, int | float]:
    if value is None:
        return {}
    found: dict[str, int | float] = {}
    for word in value.split():
        name, equals, number = word.partition("=")
        if name not in _NUMBERS or not equals:
            raise _wrong(path, line, "settings", f"NAME=VALUE, a NAME being one of {', '.join(_NUMBERS)}; got {word!r}")
        try:
            found[name] = int(number) if _NUMBERS[name] == "int" else float(number)
        except ValueError:
            raise _wrong(path, line, "settings", f"a number of type {_NUMBERS[name]}; got {word!r}") from None
    if not found:
        raise _wrong(path, line, "settings", "at least one NAME=VALUE; got nothing")
    return found


def _wrong(path: str, line: int, key: str, expected: str) -> SettingError:
    return SettingError(f"{path}, line {line}: expected {expected}. Example: `{_EXAMPLES[key]}`")
