"""Languages a candidate may be written in: one file each, and one line here."""

from kernelevolve.errors import UnknownNameError
from kernelevolve.languages.base import BUILD_DIR, Language
from kernelevolve.languages.cpp import Cpp
from kernelevolve.languages.cuda import Cuda
from kernelevolve.languages.pytorch import PyTorch
from kernelevolve.languages.triton import Triton

LANGUAGES: dict[str, Language] = {language.name: language for language in (Cuda(), Cpp(), Triton(), PyTorch())}
"""By name; the first that recognises a source has it, so the catch-all stands last."""


def get(name: str) -> Language:
    """The plug-in called `name`. Raises UnknownNameError."""
    try:
        return LANGUAGES[name]
    except KeyError:
        raise UnknownNameError("language", name, list(LANGUAGES)) from None


def detect(source: str) -> str:
    """Name of the language of `source`; "pytorch" for whatever nothing else claims."""
    return next((name for name, language in LANGUAGES.items() if language.detect(source)), "pytorch")


__all__ = ["BUILD_DIR", "LANGUAGES", "Language", "detect", "get"]
