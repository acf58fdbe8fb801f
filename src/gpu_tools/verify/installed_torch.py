"""Reads the torch installed in an environment: the symbols, headers and architectures that extensions must fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cuda_code import cuda_archs
from cuda_code.elf_file import NotElf, opened
from cuda_code.kernels import TORCH_KERNELS
from cuda_code.torch_abi import c_symbols
from gpu_tools.verify.build_target import other_accelerator

_FILE_VERSION = re.compile(r"(?<=\.so)(?:\.\d+)+$")
_VERSION = re.compile(r"^__version__\s*=\s*'([^']+)'", re.MULTILINE)
_CUDA = re.compile(r"^cuda(?:\s*:[^=]+)?\s*=\s*(?:'([^']+)'|None)", re.MULTILINE)
_HIP = re.compile(r"^hip(?:\s*:[^=]+)?\s*=\s*(?:'([^']+)'|None)", re.MULTILINE)
# TORCH_INTERNAL_ASSERT, AT_ASSERT, and macros that wrap them: the compiler records the line of the outer macro
_ASSERT = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\s*\(")
_TORCH_NAMES = re.compile(r"_ZN?[KVTISL0-9]*(?:N[KV]*)?(?:3c10|2at|5torch)")


@dataclass(frozen=True)
class InstalledTorch:
    """An installed torch, read without importing it."""

    package: Path  #: Its folder in site-packages.
    prefix: Path  #: The environment.
    version: str  #: ``2.13.0+cu130``, from ``torch/version.py``.
    cuda: str | None  #: ``13.0``, from ``torch/version.py``.
    other: str = ""  #: An accelerator that verify does not support: ``ROCm``.

    @property
    def second(self) -> Path | None:
        """A second libtorch, in the prefix's lib: Python does not load it if torch/lib has its own."""
        own = self.package / "lib/libtorch_cpu.so"
        shared = self.prefix / "lib/libtorch_cpu.so"
        if own.is_file() and shared.is_file() and not own.samefile(shared):
            return shared
        return None

    def libraries(self) -> Iterator[Path]:
        """Yield the libraries of the libtorch that Python loads: from torch/lib or the prefix's lib."""
        folders = [self.package / "lib"]
        if not self.second:
            folders.append(self.prefix / "lib")
        for folder in folders:
            for pattern in ("libtorch*.so", "libc10*.so"):
                yield from filter(Path.is_file, sorted(folder.glob(pattern)))

    @cached_property
    def exported(self) -> frozenset[str] | None:
        """The symbols that libtorch's libraries export; None if one of them is damaged: its own row says so."""
        symbols: set[str] = set()
        try:
            for path in self.libraries():
                with opened(path) as library:
                    symbols |= library.exported()
        except NotElf:
            return None
        return frozenset(symbols)

    def lacks(self, undefined: frozenset[str]) -> list[str]:
        """Return the torch symbols in ``undefined`` that this torch does not export, as far as it can be read."""
        if self.exported is None:
            return []
        torchs = set(filter(_TORCH_NAMES.match, undefined))
        torchs.update(c_symbols(undefined))
        return sorted(torchs - self.exported)

    def denies(self, assertions: frozenset[tuple[str, int]]) -> list[str]:
        """Return the assertions that this torch's headers do not have at that line: ``c10/util/x.h:232``.

        A library contains path and line of each assertion in the headers it was compiled with. Headers that are not
        installed are skipped.
        """
        denied = []
        for header, line in sorted(assertions):
            lines = self._assertion_lines(header)
            if lines and line not in lines:
                denied.append(f"{header}:{line}")
        return denied

    def _assertion_lines(self, header: str) -> set[int]:
        folders = (
            self.package / "include",
            self.package / "include/torch/csrc/api/include",
            self.prefix / "include",
        )
        for folder in folders:
            path = folder / header
            if path.is_file():
                return set(_list_assertion_lines(path.read_text(encoding="utf-8", errors="replace")))
        return set()

    @cached_property
    def archs(self) -> tuple[str, ...]:
        """The architectures of libtorch's machine code, as in ``TORCH_CUDA_ARCH_LIST``; empty for a CPU build."""
        if not self.cuda:
            return ()
        for path in self.libraries():
            if path.name in TORCH_KERNELS:
                with suppress(NotElf), opened(path) as library:
                    names = _find_usual_code(cuda_archs.units(library))
                    return tuple(f"{cuda_archs.number(name) / 10:.1f}" for name in names)
        return ()


def library_name(path: str) -> str:
    """Return a library's file name without version: ``libtorch.so`` for ``lib/libtorch.so.2.6.0`` (Debian)."""
    return _FILE_VERSION.sub("", path.rpartition("/")[2])


def parse_torch(package: Path, prefix: Path, text: str) -> InstalledTorch:
    """Return the torch in site-packages folder ``package``; ``text`` is the content of its ``version.py``.

    Raises ValueError: The text has no version.
    """
    version = _VERSION.search(text)
    cuda = _CUDA.search(text)
    hip = _HIP.search(text)
    if version is None:
        raise ValueError("no __version__")
    other = other_accelerator(version[1])
    if hip and hip[1]:
        other = "ROCm"
    return InstalledTorch(package, prefix, version[1], cuda[1] if cuda else None, other)


def _find_usual_code(units: Sequence[cuda_archs.Fatbin]) -> tuple[str, ...]:
    """Return the machine code of most kernels: a few are compiled for more architectures than the list has."""
    counts: Counter[str] = Counter()
    for unit in units:
        counts.update(unit.sm)
    return cuda_archs.ordered([name for name, count in counts.items() if count * 2 > len(units)])


def _list_assertion_lines(text: str) -> Iterator[int]:
    """Yield the lines of the assertions in a header: depending on the compiler, the first or the last line counts."""
    for match in _ASSERT.finditer(text):
        end = _closing(text, match.end())
        yield text.count("\n", 0, match.start()) + 1
        yield text.count("\n", 0, end) + 1


def _closing(text: str, position: int) -> int:
    depth = 1
    while depth and position < len(text):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
    return position - 1
