"""`kernelevolve doctor`: what this machine has, and what is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from kernelevolve import errors
from kernelevolve.commands import console

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")
"""Environment variables that model clients read; only whether they are set is ever told."""

_PACKAGES = {"torch": "", "numpy": "", "pandas": "", "duckdb": "", "plotly": "lab", "nbconvert": "lab",
             "ipywidgets": "lab", "anthropic": "llm", "triton": "gpu"}


def doctor(workspace: Path | None, *, as_json: bool) -> None:
    """Devices, compilers, packages, isolation levels, keys, workspace. Answers even when parts are broken."""
    from kernelevolve.versions import versions

    parts: dict[str, dict[str, Any]] = {
        "versions": dict(versions()),
        "platforms": _each(_platforms),
        "languages": _each(_languages),
        "isolation": _each(_isolation),
        "packages": {name: _package(name, extra) for name, extra in _PACKAGES.items()},
        "keys": {name: "set" if os.environ.get(name) else "not set" for name in KEYS},
        "workspace": _each(lambda: _workspace(workspace)),
    }
    if as_json:
        console.show_json(parts)
        return
    rows = [(part, name, value) for part, found in parts.items() for name, value in _lines(found)]
    console.show_table(("part", "what", "state"), rows)


def refuse(message: str) -> NoReturn:
    """Options that do not go together."""
    raise errors.SettingError(message)


def _each(look: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One part; what breaks in it is its answer."""
    try:
        return look()
    except errors.KernelEvolveError as error:
        return {"problem": str(error)}


def _platforms() -> dict[str, Any]:
    from kernelevolve.platforms import PLATFORMS

    found: dict[str, Any] = {}
    for name, platform in PLATFORMS.items():
        here, reason = platform.available()
        found[name] = platform.facts() if here else f"not here: {reason}"
    return found


def _languages() -> dict[str, Any]:
    from kernelevolve.languages import LANGUAGES

    found: dict[str, Any] = {}
    for name, language in LANGUAGES.items():
        try:
            found[name] = language.toolchain() or "ready"
        except errors.MissingDependencyError as error:
            found[name] = f"missing: {error}"
    return found


def _isolation() -> dict[str, Any]:
    from kernelevolve.evaluation.isolation import LEVELS

    found = {}
    for name, level in LEVELS.items():
        here, reason = level.available()
        found[name] = "available" if here else f"not available: {reason}"
    return found


def _package(name: str, extra: str) -> str:
    if importlib.util.find_spec(name) is None:
        return f'not installed; pip install "kernelevolve[{extra}]"' if extra else "not installed"
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "installed"


def _workspace(path: Path | None) -> dict[str, Any]:
    from kernelevolve.store import Workspace

    space = Workspace(path)
    there = next(p for p in (space.path, *space.path.parents) if p.exists())
    return {
        "path": str(space.path), "exists": space.path.exists(), "writable": os.access(there, os.W_OK),
        "studies": len(space.studies()), "free_gb": round(shutil.disk_usage(there).free / 1e9, 1),
        "damage": [s for name in space.studies() if (s := space.study(name).state_damage())],
    }


def _lines(found: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for key, value in found.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            lines += _lines(value, f"{name}.")
        elif isinstance(value, list):
            lines.append((name, ", ".join(map(str, value)) or "none"))
        else:
            lines.append((name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return lines
