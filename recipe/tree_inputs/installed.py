"""Remove installed files that the tree's last install no longer has: they would be packed.

CMake's list of installed files has those of the last install only, so another list keeps those of former installs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cmake_python_swap.atomic_file import write_atomically

from .outputs import read_sources

_MANIFEST = "install_manifest.txt"
_FORMER = "installed-before.txt"


def has_installed(build: Path) -> bool:
    """Return whether a list names installed files."""
    return bool(_read(build / _FORMER) or _read(build / _MANIFEST))


def note(build: Path) -> None:
    """Before an install: keep the names of the files that are installed."""
    names = dict.fromkeys([*_read(build / _FORMER), *_read(build / _MANIFEST)])
    _write(build / _FORMER, names)


def remove_former(build: Path, top: Path) -> tuple[str, ...]:
    """After an install: delete files below `top` that former installs made and this one did not; return them."""
    now = _read(build / _MANIFEST)
    kept = frozenset(now)
    gone: list[str] = []
    for name in _read(build / _FORMER):
        if name not in kept:
            gone.append(name)
    removed = _delete(build, gone, top)
    _write(build / _FORMER, now)
    return removed


def forget(build: Path, top: Path) -> tuple[str, ...]:
    """Delete all installed files below `top`: CMake would keep those that have the date of their replacement."""
    names = dict.fromkeys([*_read(build / _FORMER), *_read(build / _MANIFEST)])
    return _delete(build, names, top)


def _delete(build: Path, names: Iterable[str], top: Path) -> tuple[str, ...]:
    real = os.path.realpath(top)
    tree = os.path.realpath(build.parent)
    sources = read_sources(Path(tree))
    removed: list[str] = []
    for name in names:
        folder, file = os.path.split(name)
        place = os.path.join(os.path.realpath(folder), file)  # a link in the tree may lead out of it
        is_below = place.startswith(f"{real}/") and file not in ("", os.curdir, os.pardir)
        if is_below and os.path.relpath(place, tree) not in sources and _is_file(place):
            os.unlink(place)
            removed.append(name)
    return tuple(removed)


def _is_file(path: str) -> bool:
    return os.path.islink(path) or os.path.isfile(path)


def _read(path: Path) -> list[str]:
    """Return the absolute paths in a list; none if it is missing, a link or damaged."""
    if path.is_symlink() or not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return list(filter(os.path.isabs, text.splitlines()))


def _write(path: Path, names: Iterable[str]) -> None:
    if path.is_symlink():  # write_atomically() would follow it
        path.unlink()
    write_atomically(path, "".join(f"{name}\n" for name in names).encode("utf-8", "surrogateescape"))
