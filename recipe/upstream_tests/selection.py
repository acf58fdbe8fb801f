"""Reads selection.ini: the files of PyTorch's tests, and the tests among them that are skipped, with their reasons."""

from __future__ import annotations

import configparser
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

NAME = "selection.ini"
#: The selection next to this module, in the recipe and in the package.
PATH = Path(__file__).resolve().parent / NAME
_SKIP = "skip"  # begins the name of a section
_MAY_BE_EMPTY = "may be empty"
_OPERATORS = "<>=!~"


class Part(str, Enum):
    """The sections with files."""

    EACH_PYTHON = "each Python"
    ONE_PYTHON = "one Python"  #: files about kernels and compilers, whose results do not depend on the Python


@dataclass(frozen=True)
class Build:
    """The torch that is tested."""

    version: str
    #: ``cpu`` or ``cuda``, ``mkl`` or ``generic``, the machine such as ``aarch64``, the Python such as ``python3.12``
    words: frozenset[str]

    def meets(self, condition: str) -> bool:
        """Return whether all words of a condition hold: versions such as ``<2.7``, and ``words``."""
        return all(self._holds(word) for word in condition.split())

    def _holds(self, word: str) -> bool:
        if word[0] not in _OPERATORS:
            return word in self.words
        from packaging.specifiers import SpecifierSet  # pytest requires packaging
        from packaging.version import Version

        return SpecifierSet(word).contains(Version(self.version).base_version)


def installed_build() -> Build:
    """Return the installed torch."""
    import torch

    accelerator = "cpu" if torch.version.cuda is None else "cuda"
    blas = "mkl" if "BLAS_INFO=mkl" in torch.__config__.show() else "generic"
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    words = frozenset({accelerator, blas, python, platform.machine()})
    return Build(version=torch.__version__, words=words)


@dataclass(frozen=True)
class Selection:
    """The content of selection.ini: its sections by name."""

    sections: Mapping[str, Mapping[str, str]]

    def files(self, parts: Iterable[Part] = Part) -> list[str]:
        """Return the files of these parts, in their order."""
        names: list[str] = []
        for part in parts:
            names += self.sections.get(part.value, {})
        return names

    def keywords(self, file: str) -> str:
        """Return the expression for pytest's ``-k`` that selects tests of a file; empty for all."""
        for part in Part:
            section = self.sections.get(part.value, {})
            if file in section:
                return " ".join(section[file].split())  # pytest refuses expressions of several lines
        return ""

    def skips(self, build: Build) -> list[tuple[str, str]]:
        """Return the patterns of tests to skip, each with its reason."""
        found: list[tuple[str, str]] = []
        for section in self._meeting(_SKIP, build):
            found += section.items()
        return found

    def may_be_empty(self, file: str, build: Build) -> bool:
        """Return whether a file is right if none of its tests runs."""
        return any(file in section for section in self._meeting(_MAY_BE_EMPTY, build))

    def _meeting(self, kind: str, build: Build) -> Sequence[Mapping[str, str]]:
        """Return the sections of a kind whose condition holds."""
        found: list[Mapping[str, str]] = []
        for name, section in self.sections.items():
            is_of_kind = name == kind or name.startswith(f"{kind} ")
            if is_of_kind and build.meets(name.removeprefix(kind)):
                found.append(section)
        return found


def read_selection(path: Path = PATH) -> Selection:
    """Read selection.ini; its names are patterns that may contain colons."""
    reader = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",), interpolation=None)
    reader.optionxform = str  # type: ignore[method-assign,assignment]
    with path.open(encoding="utf-8") as file:
        reader.read_file(file)
    return Selection(sections={name: dict(reader[name]) for name in reader.sections()})
