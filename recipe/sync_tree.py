"""Copy changed sources into a build tree that outlives the engine's work folder.

The engine unpacks and patches the sources for every run, which gives patched files new dates; ninja would recompile all
objects that include them. This script replaces a file only if its content differs, so an interrupted compile resumes.
Standard library only, because build scripts run it with any Python.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tree_dates

MANIFEST = ".megabuild-sync.json"
#: In an emptied work folder. Without it, running the build script there again would delete the tree's sources.
SYNCED = ".megabuild-synced"
#: Files that the engine writes into its work folder, which are not sources.
ENGINE_FILES = frozenset(
    {"conda_build.log", "conda_build.sh", "build_env.sh", ".source_info.json", ".condapackageignore", SYNCED}
)


def source_files(root: Path) -> Iterator[Path]:
    """Yield the paths, relative to ``root``, of all files and links below it, without the engine's own files."""
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(set(folders) - set(links))
        for name in sorted(files + links):
            if here == root and name in ENGINE_FILES:
                continue
            yield (here / name).relative_to(root)


def same(left: Path, right: Path) -> bool:
    """Return whether two paths have the same content, link target and mode."""
    if left.is_symlink() or right.is_symlink():
        return left.is_symlink() and right.is_symlink() and os.readlink(left) == os.readlink(right)
    if not right.is_file() or left.stat().st_mode != right.stat().st_mode:
        return False
    return filecmp.cmp(left, right, shallow=False)


class Synced(NamedTuple):
    """The changes that :func:`sync` made."""

    written: int  #: number of files written
    removed: int  #: number of files removed
    set_back: int  #: seconds by which the tree's dates were set back, because some were in the future; or 0


def sync(source: Path, tree: Path) -> Synced:
    """Make the sources in ``tree`` equal to those in ``source``; files that a build made in it stay.

    Written files are newer than all other files in the tree, even if the clock was set back.
    """
    tree.mkdir(parents=True, exist_ok=True)
    newest, set_back = tree_dates.mend(tree)
    manifest = tree / MANIFEST
    before = _read(manifest)
    now = list(source_files(source))
    # The manifest grows before the tree does, so that later runs can remove the files of a killed run.
    _write(manifest, sorted(before | {path.as_posix() for path in now}))
    written = 0
    for path in now:
        old, new = tree / path, source / path
        if same(new, old):
            continue
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        old.parent.mkdir(parents=True, exist_ok=True)
        copy = old.with_name(old.name + ".sync")
        shutil.copy2(new, copy, follow_symlinks=False)
        if not copy.is_symlink():
            os.utime(copy)  # newer than any object made from the former content
            while copy.stat().st_mtime_ns <= newest:  # some file systems count in seconds
                time.sleep(0.01)
                os.utime(copy)
        os.replace(copy, old)
        written += 1
    gone = before - {path.as_posix() for path in now}
    for name in gone:
        (tree / name).unlink(missing_ok=True)
    _write(manifest, sorted(path.as_posix() for path in now))
    return Synced(written, len(gone), set_back)


def empty(source: Path) -> None:
    """Remove the synced sources from ``source``: the engine would copy them for every output."""
    for entry in source.iterdir():
        if entry.name in ENGINE_FILES:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


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
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _write(path: Path, names: list[str]) -> None:
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(names, indent=0))
    os.replace(new, path)


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
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    if options.generate:
        generate(options.generate, arguments[split + 1 :])
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
    (options.source / SYNCED).touch()
    if set_back:
        print(f"{options.tree}: dates were in the future: set back by {set_back} s")
    print(f"::megabuild:: synced written={written} removed={removed}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
