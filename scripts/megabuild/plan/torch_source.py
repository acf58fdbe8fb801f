"""A release of PyTorch that the user brings: a folder or a tarball, checked before anything is compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from groundwork import files
from groundwork.errors import IntegrityError, PreflightError, ProviderError, UsageError

_RELEASE = "take a release's pytorch-v tarball, or a clone made with `git clone --recursive`"
_REQUIRES_PYTHON = re.compile(r"""^requires-python\s*=\s*(["'])(?P<versions>[^"']+)\1""", re.MULTILINE)
_SHOWN = 4


@dataclass(frozen=True, kw_only=True)
class SourceTree:
    """A source tree that fits."""

    path: Path  #: the unpacked tree
    triton: str | None  #: the version of Triton that it names, or None where it names none
    pythons: str | None  #: the Pythons that it is for, ``>=3.10``, or None where it names none


def check_source(
    given: Path,
    *,
    digest: str | None,
    version: str,
    third_party: bool,
    cache: Path,
    report: Callable[[str], None],
) -> SourceTree:
    """Check the folder, or tarball with this sha256, that the user named; a tarball is unpacked into the cache first.

    Its version.txt must name the version that is to be built, whatever follows there (``2.13.0a0``). Submodules must be
    there where the build takes ``third_party`` from the tree.

    Raises UsageError: There is no such file, a tarball without sha256, a folder with one, or a tree of another
        version.
    Raises IntegrityError: The tarball is another one, or cannot be read.
    Raises PreflightError: The tree is not PyTorch's, or its submodules are missing.
    """
    if given.is_dir():
        if digest is not None:
            raise UsageError(f"{given} is a folder, which has no sha256", "leave out --torch-sha256")
        tree = given.absolute()
    elif given.is_file():
        tree = _unpack(given.absolute(), digest, cache / "torch-source", report)
    else:
        raise UsageError(f"there is no {given}", "--torch-source takes a folder or a tarball")
    found = version_of(tree)
    if Version(found).base_version != Version(version).base_version:
        raise UsageError(
            f"{given} is PyTorch {found}, and {version} is to be built",
            f"build it as what it is with --torch {Version(found).base_version}, or bring the other release",
        )
    lacking = missing_submodules(tree) if third_party else []
    if lacking:
        more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        raise PreflightError(
            f"{given} lacks its submodules: {', '.join(lacking[:_SHOWN])}{more}",
            f"`git submodule update --init --recursive` in it, or {_RELEASE}"
            if (tree / ".git").exists()
            else f'GitHub\'s own archives ("Source code") have none: {_RELEASE}',
        )
    named = _REQUIRES_PYTHON.search(_text(tree / "pyproject.toml"))
    return SourceTree(
        path=tree,
        triton=_text(tree / ".ci" / "docker" / "triton_version.txt").strip() or None,
        pythons=named["versions"] if named else None,
    )


def _text(path: Path) -> str:
    """Return a file's content; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def version_of(tree: Path) -> str:
    """Return the version in a tree's version.txt.

    Raises PreflightError: It has none, or one without a version in it.
    """
    path = tree / "version.txt"
    try:
        text = path.read_text(encoding="utf-8").strip()
        return str(Version(text))
    except (OSError, UnicodeError) as error:
        raise PreflightError(
            f"{tree} has no version.txt, so it is not a tree of PyTorch", _RELEASE
        ) from error
    except InvalidVersion as error:
        raise PreflightError(f"{path} says '{text}', which is not a version", _RELEASE) from error


def missing_submodules(tree: Path) -> list[str]:
    """Return the submodules that .gitmodules names and whose folders are empty or not there."""
    try:
        text = (tree / ".gitmodules").read_text(encoding="utf-8")
    except OSError:
        return []
    named = re.findall(r"^\s*path\s*=\s*(\S+)\s*$", text, re.MULTILINE)
    return [name for name in named if not (tree / name).is_dir() or not any((tree / name).iterdir())]


def _unpack(tarball: Path, digest: str | None, cache: Path, report: Callable[[str], None]) -> Path:
    """Return the one folder of a tarball, unpacked once for every content."""
    report(f"reading {tarball.name}")
    found = files.sha256(tarball)
    if digest is None:
        raise UsageError(f"{tarball.name} comes without a sha256", f"--torch-sha256; this file has {found}")
    if found != digest.lower():
        raise IntegrityError(
            f"{tarball} has sha256 {found}, not {digest}", "get it again, from where the sha256 is from"
        )
    final = cache / found[:16]
    if not final.is_dir():
        report(f"unpacking {tarball.name}")
        try:
            with files.scratch(cache) as empty:
                files.unpack(tarball, empty / "unpacked")
                os.replace(empty / "unpacked", final)
        except OSError as error:
            if not final.is_dir():  # else somebody else was faster
                raise ProviderError(
                    f"{tarball} cannot be unpacked: {error}", "check the disk and the cache folder"
                ) from error
    folders = [path for path in final.iterdir() if path.is_dir()]
    return folders[0] if len(folders) == 1 and not (final / "version.txt").is_file() else final
