"""A problem file, imported. For workers only: this runs the file's code."""

from __future__ import annotations

import difflib
import inspect
import linecache
import random
import resource
import sys
import traceback
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from kernelevolve import errors

_REQUIRED = {
    "Model": "a torch.nn.Module class, the reference",
    "get_inputs": "a function without arguments that returns the list of Model.forward's arguments",
    "get_init_inputs": "a function without arguments that returns the list of Model's arguments",
}


class ProblemModule:
    """The file's names, checked for presence and kind; `model` and `inputs` build things from a seed."""

    def __init__(self, source: str, path: str) -> None:
        self.source, self.path = source, path
        self.module = _execute(source, path)
        for name, what in _REQUIRED.items():
            if not callable(getattr(self.module, name, None)):
                raise self._missing(name, what)
        if not (inspect.isclass(self.Model) and issubclass(self.Model, torch.nn.Module)):
            raise self.error(f"Model is {self.Model!r}; expected {_REQUIRED['Model']}", at=self.Model)
        for name in ("get_inputs", "get_init_inputs"):
            function = getattr(self.module, name)
            try:
                inspect.signature(function).bind()
            except TypeError as error:
                text = f"{name}{inspect.signature(function)}: expected no required arguments"
                raise self.error(text, at=function) from error
        self.cases = self._cases()
        self.references = self._references()
        self.tolerance = self._tolerance()
        self.backward = bool(getattr(self.module, "BACKWARD", False))
        self._defaults = {k: getattr(self.module, k) for case in self.cases.values() for k in case}

    @property
    def Model(self) -> type[torch.nn.Module]:  # noqa: N802 - the format's name
        """The reference's class."""
        return self.module.Model

    def use_case(self, name: str | None) -> None:
        """Set the module globals of one of CASES; None for the defaults."""
        for key, value in {**self._defaults, **(self.cases[name] if name else {})}.items():
            setattr(self.module, key, value)

    def model(self, seed: int, kind: type[torch.nn.Module] | None = None) -> torch.nn.Module:
        """A fresh Model (or one of REFERENCES) with the weights of this seed."""
        kind = kind or self.Model
        seed_all(seed)
        arguments = self._list("get_init_inputs")
        try:
            inspect.signature(kind).bind(*arguments)
        except TypeError as error:
            raise self.error(
                f"{kind.__name__}{inspect.signature(kind)} cannot take the {len(arguments)} values "
                f"of get_init_inputs: {error}",
                at=kind,
            ) from error
        try:
            return kind(*arguments)
        except Exception as error:
            raise self.blame(error, f"{kind.__name__}(*get_init_inputs())", at=kind) from error

    def inputs(self, seed: int) -> list[Any]:
        """The arguments of one call, drawn with this seed."""
        seed_all(seed)
        return self._list("get_inputs")

    def check_forward(self, model: torch.nn.Module, inputs: list[Any]) -> None:
        """Raise when the forward cannot take the inputs, before it is called."""
        try:
            inspect.signature(model.forward).bind(*inputs)
        except TypeError as error:
            raise self.error(
                f"{type(model).__name__}.forward{inspect.signature(model.forward)} cannot take the {len(inputs)} "
                f"values of get_inputs: {error}",
                at=type(model).forward,
            ) from error

    def error(self, text: str, *, at: object = None, line: int | None = None) -> errors.ProblemError:
        """A ProblemError that begins with the file and the line of `at` (a class or function)."""
        if line is None:
            line = 1
            if at is not None:
                try:
                    line = inspect.getsourcelines(at)[1]  # type: ignore[arg-type]
                except (OSError, TypeError):
                    line = 1
        return errors.ProblemError(f"{self.path}:{line}: {text}")

    def blame(self, error: BaseException, doing: str, *, at: object = None) -> errors.ProblemError:
        """A ProblemError for an exception, at the line of the file that led to it or else at that of `at`."""
        if isinstance(error, errors.ProblemError):
            return error
        if "allocate memory" in str(error):
            limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
            doing += f" (with {limit / 2**30:.1f} GiB, four fifths of what was free)"
        return self.error(f"{doing} raised {type(error).__name__}: {error}", at=at, line=_line_of(error, self.path))

    def _list(self, name: str) -> list[Any]:
        try:
            values = getattr(self.module, name)()
        except Exception as error:
            raise self.blame(error, f"{name}()", at=getattr(self.module, name)) from error
        if not isinstance(values, (list, tuple)):
            raise self.error(f"{name}() returned a {type(values).__name__}; expected a list of arguments, such as [x]",
                             at=getattr(self.module, name))
        return list(values)

    def _missing(self, name: str, what: str) -> errors.ProblemError:
        names = {k: v for k, v in vars(self.module).items() if getattr(v, "__module__", "") == self.module.__name__}
        near = difflib.get_close_matches(name, names, n=1)
        text = f"no {name} in this file; expected {what}"
        return self.error(f"{text} (did you mean {near[0]}?)" if near else text, at=names[near[0]] if near else None)

    def _cases(self) -> dict[str, dict[str, Any]]:
        cases = getattr(self.module, "CASES", {})
        if not isinstance(cases, Mapping) or not all(isinstance(v, Mapping) for v in cases.values()):
            raise self.error('CASES: expected {"name": {"module_global": value}}', line=self._line_of("CASES"))
        for number, (name, overrides) in enumerate(cases.items()):
            for key, value in overrides.items():
                if not hasattr(self.module, key):
                    raise self.error(f"CASES[{name!r}] sets {key!r}, which is no module global of this file",
                                     line=self._line_of("CASES"))
                if number == 0 and getattr(self.module, key) != value:
                    raise self.error(
                        f"CASES[{name!r}] comes first and so is the tuned one; expected the default {key} = "
                        f"{getattr(self.module, key)!r}, found {value!r}", line=self._line_of("CASES"),
                    )
        return {str(name): dict(overrides) for name, overrides in cases.items()}

    def _references(self) -> dict[str, type[torch.nn.Module]]:
        references = getattr(self.module, "REFERENCES", {})
        good = isinstance(references, Mapping) and all(
            inspect.isclass(v) and issubclass(v, torch.nn.Module) for v in references.values()
        )
        if not good:
            raise self.error('REFERENCES: expected {"name": Class} with subclasses of torch.nn.Module',
                             line=self._line_of("REFERENCES"))
        return {str(name): kind for name, kind in references.items()}

    def _tolerance(self) -> float | None:
        value = getattr(self.module, "TOLERANCE", None)
        if value is not None and not (isinstance(value, (int, float)) and 0 < value < float("inf")):
            raise self.error(f"TOLERANCE = {value!r}: expected a positive number that scales the rule set's own",
                             line=self._line_of("TOLERANCE"))
        return None if value is None else float(value)

    def _line_of(self, name: str) -> int:
        for number, line in enumerate(self.source.splitlines(), 1):
            if line.startswith(name):
                return number
        return 1


def seed_all(seed: int) -> None:
    """Seed torch, numpy and random."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _execute(source: str, path: str) -> types.ModuleType:
    try:
        code = compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        text = f"{path}:{error.lineno or 1}: syntax error: {error.msg}: {(error.text or '').strip()}"
        raise errors.ProblemError(text) from error
    except ValueError as error:
        raise errors.ProblemError(f"{path}:1: not Python source: {error}") from error
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = types.ModuleType("kernelevolve_problem")
    module.__file__ = path
    sys.modules[module.__name__] = module
    try:
        exec(code, module.__dict__)  # noqa: S102 - this worker exists to run it
    except (Exception, SystemExit) as error:
        text = f"{path}:{_line_of(error, path) or 1}: import raised {type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError):
            text += "; expected one self-contained file: install the package or do without"
        raise errors.ProblemError(text) from error
    return module


def _line_of(error: BaseException, path: str) -> int | None:
    """The innermost line of the file on the way to the error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return lines[-1] if lines else None
