"""Chooses the GCC that nvcc calls: each CUDA toolkit refuses newer versions than the newest it knows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from groundwork.debian_packages import install_command
from groundwork.errors import PreflightError
from groundwork.process import run

#: The oldest GCC that is looked for.
_OLDEST = 9
_SECONDS = 30.0
#: In ``crt/host_config.h`` of a toolkit: ``#if __GNUC__ > 15``.
_LIMIT = re.compile(r"^\s*#\s*if\s+__GNUC__\s*>\s*(\d+)", re.MULTILINE)
#: In the output of ``g++ --version``: ``g++ (Debian 14.2.0-19) 14.2.0``, then the owner of the copyright.
_GCC = re.compile(r"\) (\d+)\.\d.*\n.*Free Software Foundation")


def read_newest_gcc(include: Path) -> int | None:
    """Return the newest major version of GCC that a CUDA toolkit accepts, by its folder of headers; None if unknown."""
    try:
        text = (include / "crt" / "host_config.h").read_text(errors="replace")
    except OSError:
        return None
    return _number(_LIMIT, text)


def find_gcc_suffix(newest: int, path: str, *, compiler: str = "g++") -> str:
    """Return the suffix of the GCC to use: empty if ``compiler`` is not too new, else ``-15``.

    ``newest`` is a major version, ``path`` the value of ``PATH``.

    Raises PreflightError: GCC is too new, and no older one is installed.
    """
    version = _gcc_version(compiler, path)
    if version is None or version <= newest:
        return ""
    for number in range(newest, _OLDEST - 1, -1):
        if all(shutil.which(f"{name}-{number}", path=path) for name in ("gcc", "g++")):
            return f"-{number}"
    raise PreflightError(
        f"{compiler} is GCC {version}, but nvcc accepts GCC {newest} and older",
        f"install an older GCC, which megabuild then uses: {install_command(f'g++-{newest}')}",
    )


def _gcc_version(compiler: str, path: str) -> int | None:
    program = shutil.which(compiler, path=path)
    if program is None:
        return None
    shown = run([program, "--version"], timeout=_SECONDS)
    return _number(_GCC, shown.stdout)


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    if match is None:
        return None
    return int(match[1])
