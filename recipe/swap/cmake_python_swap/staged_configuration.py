"""Keep the configuration of a tree before its first swap, and restore it later.

Configuring PyTorch from scratch takes 20 to 26 s of one core. Restored files are those that CMake wrote then, byte for
byte: nothing is computed again. Standard library only, CPython >= 3.10.

A file in the build folder, ``settings``, vouches for the configuration: whoever configured the tree wrote it last. It
is removed before the first swap, and restored last. So it is missing while the tree has another configuration, or a
part of one, also after a kill.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from . import python_headers, undo_folder
from .cmake_regenerate import SOURCES, not_made_by_ninja
from .ninja_dry_run import BUILD_FILE, Graph

NAME = "python-swap.kept"
_BINARY = frozenset([".o", ".a", ".so"])  # of a build inside the build
_OF_SWAPS = ("python-swap.", python_headers.RECORD)


def keep(build_dir: Path, settings: str) -> bool:
    """Copy the files that configuring wrote, then remove ``settings``; return False if it is missing.

    Raises NinjaError, OSError: The files cannot be read or copied; the configuration is unchanged.
    """
    voucher = build_dir / settings
    if not voucher.is_file():
        return False
    files = [path for path in not_made_by_ninja(build_dir) if _is_configuration(path)]
    undo_folder.forget(build_dir, NAME)  # of a `keep` that was killed before it removed the voucher
    undo_folder.prepare(build_dir, files, NAME)
    voucher.unlink()
    return True


def _is_configuration(path: Path) -> bool:
    return path.suffix not in _BINARY and not path.name.startswith(_OF_SWAPS)


def restore(build_dir: Path, settings: str) -> bool:
    """Restore the files that :func:`keep` copied, ``settings`` last; return False if there are no copies.

    Afterwards there are no copies, also if this fails: the tree must then be configured from scratch.

    Raises NinjaError, OSError: The copies are incomplete, or cannot be read.
    """
    folder = build_dir / NAME
    if not folder.is_dir():
        return False
    try:
        # with the voucher, the tree has its configuration: a kill came before or after this work
        is_swapped = not (build_dir / settings).exists()
        if is_swapped:
            _restore_files(build_dir, settings)
    finally:
        undo_folder.forget(build_dir, NAME)
    return is_swapped


def _restore_files(build_dir: Path, settings: str) -> None:
    needed = _needed_by_steps(build_dir / NAME)
    for copy in undo_folder.copies(build_dir, NAME):
        target = undo_folder.target_of(copy, build_dir, NAME)
        if target == build_dir / settings:
            continue
        undo_folder.restore_content(copy, target)
        place = str(target.relative_to(build_dir))
        # Objects of another Python are newer than the former date: a changed input keeps the present one. CMake's own
        # files get the former date: otherwise ninja would run CMake first.
        if target.suffix not in SOURCES and needed.isdisjoint([place, str(target)]):
            undo_folder.restore_date(copy, target)
    shutil.copy2(build_dir / NAME / settings, build_dir / f"{settings}.new")
    (build_dir / f"{settings}.new").replace(build_dir / settings)


def _needed_by_steps(folder: Path) -> set[str]:
    """Return the inputs of all build statements but the one that runs CMake."""
    needed: set[str] = set()
    for edge in Graph(folder).edges:
        if BUILD_FILE not in edge.outputs:
            needed.update(edge.inputs)
    return needed
