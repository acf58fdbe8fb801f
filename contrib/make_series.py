#!/usr/bin/env python3
"""Make the patches of contrib/pytorch-cpu-feedstock complete, for one clone of that feedstock (see README.md).

What they bring along (the Python swap, a patch of PyTorch) is no second copy: it is taken from this repository's own
files. Every patch is applied, in a clone of the clone, before anything is written. Standard library and git only.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PATCHES = Path(__file__).resolve().parent / "pytorch-cpu-feedstock"
#: The commit of the feedstock's main branch that the patches were made for, of 2026-08-13: PyTorch 2.13.0, build 2.
MADE_FOR = "74dd3d46ff0c3d05053197961386b5a2018cf3d1"
SWAP = "recipe/cmake_python_swap"
#: What the patch of a number brings along: place in the feedstock, place here.
BROUGHT = {
    "0001": {
        **{
            f"{SWAP}/{path.name}": path
            for path in sorted((REPOSITORY / "recipe/swap/cmake_python_swap").glob("*.py"))
        },
        f"{SWAP}/LICENSE.txt": REPOSITORY / "LICENSE.txt",
    },
    "0002": {
        "recipe/patches/0024-Build-the-linear-algebra-library-in-two-flavours.patch": REPOSITORY
        / "recipe/patches/linalg-in-two-flavours.patch"
    },
}


class SeriesError(Exception):
    """No series can be made; the message says why, and what to do."""


def make(feedstock: Path, ref: str, folder: Path) -> list[Path]:
    """Write the complete patches into a new folder.

    `ref`: what of the feedstock they must apply to.

    Raises SeriesError: `feedstock` is no clone, a patch does not apply, or the folder holds something.
    """
    if folder.exists() and any(folder.iterdir()):
        raise SeriesError(
            f"{folder} holds something already; name another folder with --output, or remove it"
        )
    with tempfile.TemporaryDirectory() as temporary:
        clone = Path(temporary) / "feedstock"
        base = _clone(feedstock, ref, clone)
        for patch in sorted(PATCHES.glob("*.patch")):
            _apply(clone, patch)
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--quiet", "--zero-commit", "--no-signature", "--output-directory", str(folder.absolute())]
        _git(clone, "format-patch", *options, base)
    return sorted(folder.glob("*.patch"))


def _clone(feedstock: Path, ref: str, clone: Path) -> str:
    """Check out a commit in a clone that shares the objects of the given one and changes nothing of it."""
    found = _try(
        "-C", str(feedstock), "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
    )
    if found.returncode:
        raise SeriesError(
            f"{feedstock} has no commit {ref}: "
            "name a clone of https://github.com/conda-forge/pytorch-cpu-feedstock and, with --ref, a commit of it"
        )
    # the objects by path, not by a clone of `feedstock`: of a bare repository, or one without branches, all the same
    _run("init", "--quiet", "--template=", str(clone))
    objects = _run("-C", str(feedstock), "rev-parse", "--path-format=absolute", "--git-path", "objects")
    (clone / ".git/objects/info").mkdir(parents=True, exist_ok=True)
    (clone / ".git/objects/info/alternates").write_text(objects + "\n")
    _git(clone, "checkout", "--quiet", "--detach", found.stdout.strip())
    return found.stdout.strip()


def _apply(clone: Path, patch: Path) -> None:
    result = _try("-C", str(clone), *_IDENTITY, "am", "--quiet", str(patch))
    if result.returncode:
        why = next(
            (line for line in result.stderr.splitlines() if line.startswith("error: ")), result.stderr.strip()
        )
        raise SeriesError(
            f"{patch.name} does not apply ({why.removeprefix('error: ')}): the series is for commit {MADE_FOR[:8]}; "
            "make it for that one with --ref, and rebase it onto the newer one"
        )
    brought = BROUGHT.get(patch.name[:4], {})
    for place, source in brought.items():
        if (clone / place).resolve() != clone.resolve() / place:
            raise SeriesError(f"the feedstock has a symbolic link on the way to {place}: name another clone")
        (clone / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, clone / place)
    if brought:
        _git(clone, "add", "--", *brought)
        _git(clone, *_IDENTITY, "commit", "--quiet", "--amend", "--no-edit")


#: Only the committer; the author is the patch's.
_IDENTITY = (
    *("-c", "user.name=contrib/make_series.py", "-c", "user.email=make_series@localhost"),
    *("-c", "commit.gpgsign=false"),
)


def _git(clone: Path, *words: str) -> str:
    return _run("-C", str(clone), *words)


def _run(*words: str) -> str:
    result = _try(*words)
    if result.returncode:
        raise SeriesError(f"git {words[2] if words[0] == '-C' else words[0]} failed: {result.stderr.strip()}")
    return result.stdout.strip()


def _try(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["git", *words], capture_output=True, encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise SeriesError("git is not installed: the patches are applied with it") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="Write patches for `git am` that bring this repository's Python swap to pytorch-cpu-feedstock."
    )
    parser.add_argument(
        "feedstock", type=Path, metavar="FEEDSTOCK", help="clone of pytorch-cpu-feedstock; read only"
    )
    parser.add_argument(
        "--ref", default="HEAD", help=f"commit they are for (made for {MADE_FOR[:8]}; default: HEAD)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("series"), metavar="FOLDER", help="default: ./series"
    )
    options = parser.parse_args(arguments)
    try:
        patches = make(options.feedstock, options.ref, options.output)
    except (SeriesError, OSError) as error:
        print(f"make_series.py: {error}", file=sys.stderr)
        return 1
    for patch in patches:
        print(patch)
    print(
        f"apply what you want, in this order: git -C {options.feedstock} am FILE...; the last one is for 2.14 and later"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
