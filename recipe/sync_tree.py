"""Copy changed sources into a build tree that outlives the engine's work folder.

The engine unpacks and patches the sources for every run, which gives patched files new dates; ninja would recompile all
objects that include them. This script replaces a file only if its content differs, so an interrupted compile resumes.
Standard library only, because build scripts run it with any Python.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tree_dates
from whole_walk import walk

MANIFEST = ".megabuild-sync.json"
#: In a work folder from when it is emptied. Without it, running the build script there again would delete the sources.
SYNCED = ".megabuild-synced"
#: Files that the engine writes into its work folder, which are not sources.
ENGINE_FILES = frozenset(
    {"conda_build.log", "conda_build.sh", "build_env.sh", ".source_info.json", ".condapackageignore", SYNCED}
)


def source_entries(root: Path) -> Iterator[Path]:
    """Yield the paths, relative to ``root``, of all folders, files and links below it, each after its folder.

    The engine's own files are left out.

    Raises OSError: A folder cannot be read: its entries would be removed from the tree.
    """
    for folder, folders, files in walk(root):
        here = Path(folder)
        folders.sort()
        for name in sorted(folders + files):
            if here != root or name not in ENGINE_FILES:
                yield (here / name).relative_to(root)


def same(left: Path, right: Path) -> bool:
    """Return whether two paths have the same content, link target and mode."""
    if left.is_symlink() and right.is_symlink():
        return os.readlink(left) == os.readlink(right)
    if left.is_symlink() or right.is_symlink():
        return False
    if not right.is_file() or left.stat().st_mode != right.stat().st_mode:
        return False
    return filecmp.cmp(left, right, shallow=False)


class Synced(NamedTuple):
    """The changes that :func:`sync` made."""

    written: int  #: number of files and links written
    removed: int  #: number of files and links removed
    set_back: int  #: seconds by which the tree's dates were set back, because some were in the future; or 0


def sync(source: Path, tree: Path) -> Synced:
    """Make the sources in ``tree`` equal to those in ``source``; files that a build made in it stay.

    A file or link takes the place of a folder with the files that a build made there. Never reads, writes or removes
    through a link in the tree. Folders keep their modes. Written files are newer than all other files in the tree, even
    if the clock was set back.

    Raises OSError: There is no folder of sources, or one of its folders cannot be read; the tree keeps its own.
    """
    if not source.is_dir():  # else all sources of the tree would be taken for removed ones
        raise FileNotFoundError(f"{source}: no such folder of sources")
    tree.mkdir(parents=True, exist_ok=True)
    newest, set_back = tree_dates.mend(tree)
    before = _read(tree / MANIFEST)
    entries = list(source_entries(source))
    now = {entry.as_posix() for entry in entries}
    # The manifest grows before the tree does, so that later runs can remove the files of a killed run.
    _write(tree, before | now)
    # Former entries go first: their folders may become links, through which they would remove other files.
    removed = _remove_former(tree, sorted(before - now, reverse=True))
    written = 0
    for entry in entries:
        new = source / entry
        old = tree / entry
        if _is_folder(new):
            _make_folder(old)
        elif not same(new, old):
            _replace(old, new, tree, newest)
            written += 1
    _write(tree, now)
    return Synced(written, removed, set_back)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _make_folder(path: Path) -> None:
    """Make a folder in place of a file or link; the folder above must be no link."""
    if _is_folder(path):
        return
    tree_dates.remove(path)
    path.mkdir()


def _remove_former(tree: Path, names: Sequence[str]) -> int:
    """Remove entries that the sources no longer have, each before its folder; return the number of files and links."""
    removed = 0
    for name in names:
        path = tree / name
        if _is_behind_link(tree, path) or not os.path.lexists(path):
            continue
        if _is_folder(path):
            with contextlib.suppress(OSError):  # not empty: a build made files in it
                path.rmdir()
        else:
            path.unlink()
            removed += 1
    return removed


def _is_behind_link(tree: Path, path: Path) -> bool:
    """Return whether a folder between the tree and a path in it is a link."""
    folder = path.parent
    while folder != tree:
        if folder.is_symlink():
            return True
        folder = folder.parent
    return False


def _replace(old: Path, new: Path, tree: Path, newest: int) -> None:
    """Replace an entry of the tree by a source file or link; a file becomes newer than the date ``newest``."""
    copy = tree / tree_dates.SCRATCH
    tree_dates.remove(copy)
    shutil.copy2(new, copy, follow_symlinks=False)
    if not copy.is_symlink():
        os.utime(copy)  # newer than any object made from the former content
        while copy.stat().st_mtime_ns <= newest:  # some file systems count in seconds
            time.sleep(0.01)
            os.utime(copy)
    if _is_folder(old):
        shutil.rmtree(old)
    os.replace(copy, old)


def empty(source: Path) -> None:
    """Remove the synced sources from ``source``: the engine would copy them for every output.

    The marker comes first. Otherwise a second run after a kill would take the remaining sources for all sources.
    """
    (source / SYNCED).touch()
    for entry in source.iterdir():
        if entry.name not in ENGINE_FILES:
            tree_dates.remove(entry)


def generate(output: Path, command: Sequence[str]) -> bool:
    """Run a generator, and restore the former output with its date if the content is the same.

    Returns: Whether the content changed.
    Raises subprocess.CalledProcessError: The generator failed.
    """
    former = output.with_name(output.name + ".former")
    if output.exists():
        shutil.copy2(output, former)
    subprocess.run(command, check=True)
    if former.exists():
        if filecmp.cmp(former, output, shallow=False):
            os.replace(former, output)
            return False
        former.unlink()
    return True


def _read(path: Path) -> set[str]:
    """Return the names in a manifest, or none if it is damaged: then only removed sources stay in the tree."""
    try:
        names = json.loads(path.read_text())
    except (OSError, ValueError):
        return set()
    if not isinstance(names, list):
        return set()
    return set(filter(_is_below, names))


def _is_below(name: object) -> bool:
    """Return whether an item of a manifest is a path below the tree."""
    if not isinstance(name, str) or os.path.isabs(name):
        return False
    parts = Path(name).parts
    return bool(parts) and os.pardir not in parts


def _write(tree: Path, names: Iterable[str]) -> None:
    """Write the manifest of a tree."""
    new = tree / tree_dates.SCRATCH
    tree_dates.remove(new)
    new.write_text(json.dumps(sorted(names), indent=0))
    os.replace(new, tree / MANIFEST)


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``SOURCE TREE`` or ``--generate FILE -- COMMAND…``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("source", type=Path, nargs="?")
    parser.add_argument("tree", type=Path, nargs="?")
    parser.add_argument(
        "--generate",
        type=Path,
        metavar="FILE",
        help="run COMMAND; if FILE's content stays the same, keep its date",
    )
    command: Sequence[str] = ()
    if "--" in arguments:
        split = arguments.index("--")
        command = arguments[split + 1 :]
        arguments = arguments[:split]
    options = parser.parse_args(arguments)
    if options.generate:
        generate(options.generate, command)
        return 0
    if options.source is None or options.tree is None:
        parser.error("SOURCE and TREE are needed")
    if options.source.resolve() == options.tree.resolve():
        return 0
    if (options.source / SYNCED).exists():
        print(f"{options.source}: its sources are in the tree already")
        return 0
    written, removed, set_back = sync(options.source, options.tree)
    empty(options.source)
    if set_back:
        print(f"{options.tree}: dates were in the future: set back by {set_back} s")
    print(f"::megabuild:: synced written={written} removed={removed}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
