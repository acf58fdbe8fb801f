"""Decides by the stamp in the CMake tree, which records the tree's inputs, whether the tree can be reused.

A tree that no longer fits is removed: its objects are in the object cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec
import psutil

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError
from megabuild.engine import output_folder
from megabuild.plan.fingerprint import Fingerprint, differences

STAMP = ".megabuild-stamp.json"
#: Linux writes files to the disk within 35 s (vm.dirty_expire_centisecs, and the interval of its writers), some later.
_UNFLUSHED_SECONDS = 120.0
_NINJA_LOGS = frozenset({".ninja_log", ".ninja_deps"})
_STAMPS = msgspec.json.Decoder(dict[str, dict[str, str]])


class TreeUse(str, Enum):
    """The use of a former compile."""

    NONE = "none"  #: the recipe has no staging output
    FRESH = "fresh"  #: there is no former compile
    REUSE = "reuse"  #: nothing is compiled
    RESUME = "resume"  #: ninja compiles the objects that are missing or differ
    #: the tree is removed, and everything compiled; the object cache has most objects
    RECOMPILE = "recompile"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The use of a former compile, and why."""

    use: TreeUse
    reasons: tuple[str, ...]
    is_complete: bool = False  #: The former compile came to its end; a change since then needs few objects.


#: For a recipe without a staging output.
NOTHING_STAGED = Decision(use=TreeUse.NONE, reasons=())


def read(tree: Path) -> Fingerprint | None:
    """Return the fingerprint in a tree's stamp, or None if the stamp is missing or damaged."""
    try:
        with files.open_regular(tree / STAMP) as file:
            parts = _STAMPS.decode(file.read())
        return Fingerprint(dependency=parts["dependency"], source=parts["source"])
    except (OSError, IntegrityError, msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None


def write(tree: Path, fingerprint: Fingerprint) -> None:
    files.write(tree / STAMP, msgspec.json.encode(fingerprint))


def decide(tree: Path, output_dir: Path, fingerprint: Fingerprint) -> Decision:
    """Compare the tree with a fingerprint; changes no files.

    Raises IntegrityError: The tree is a link.
    """
    channel_folder.refuse_link(tree)
    stamp = read(tree)
    names = {path.name for path in channel_folder.entries(tree)}
    if not names:
        return Decision(use=TreeUse.FRESH, reasons=("not compiled yet",))
    if stamp is None:
        return Decision(use=TreeUse.RECOMPILE, reasons=("the tree's stamp is missing or damaged",))
    if stamp.dependency != fingerprint.dependency:
        reasons = differences(stamp.dependency, fingerprint.dependency)
        return Decision(use=TreeUse.RECOMPILE, reasons=tuple(reasons))
    if stamp.source != fingerprint.source:
        return Decision(
            use=TreeUse.RESUME,
            reasons=tuple(differences(stamp.source, fingerprint.source)),
            is_complete=bool(output_folder.staging_caches(output_dir)) and "build" in names,
        )
    if names - {STAMP} and "build" not in names:  # an unpacked official wheel has no build folder
        return Decision(use=TreeUse.RESUME, reasons=("the tree's build folder is missing",))
    if output_folder.staging_caches(output_dir):
        return Decision(use=TreeUse.REUSE, reasons=("its inputs have not changed",))
    return Decision(use=TreeUse.RESUME, reasons=("the last run did not finish it",))


def prepare_tree(decision: Decision, tree: Path, output_dir: Path, fingerprint: Fingerprint) -> None:
    """Remove stagings, and the tree unless it fits ``fingerprint``; stamp the tree.

    The order matters if the run is killed in between: stagings are removed before the stamp changes, and the stamp is
    written before the compile.
    """
    if decision.use in (TreeUse.REUSE, TreeUse.NONE):
        return
    output_folder.drop_stagings(output_dir)
    if decision.use is not TreeUse.RESUME:
        files.remove(tree)
    _drop_unflushed(tree)
    write(tree, fingerprint)


def _drop_unflushed(tree: Path) -> None:
    """If the machine was restarted since, remove the files that the build made in the last two minutes before it.

    A power cut empties files that were not flushed, but keeps their dates, by which ninja takes them for built. Of
    installed libraries, which have the dates of their originals, all go. ninja's own logs stay: it drops bad lines.
    """
    built: dict[Path, float] = {}  # with their dates
    installed: list[Path] = []
    for path in _files_below(tree):
        if path.is_relative_to(tree / "build"):
            built[path] = path.lstat().st_mtime
        elif ".so" in path.suffixes:
            installed.append(path)
    if not built:  # an unpacked wheel has no build folder
        return
    newest = max(built.values())
    if newest >= psutil.boot_time():
        return
    for path in installed:
        path.unlink()
    for path, when in built.items():
        if when > newest - _UNFLUSHED_SECONDS:
            path.unlink()


def _files_below(tree: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(tree):
        for name in names:
            if name not in _NINJA_LOGS:
                yield Path(folder, name)
