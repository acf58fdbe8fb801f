"""Healing the engine's output folder: what a killed run left half-done would break the next one.

Measured with rattler-build 0.73: a staging cache without ``metadata.json`` makes the engine build everything again and
then fail; a package appears by rename, but stands there before its test has run; what was unpacked for a test stays in
the temporary folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from rattler.index import index_fs

from megabuild.engine import archive
from megabuild.errors import IntegrityError

#: Folders that only a running engine needs.
_TRANSIENT = ("bld", "test", "broken", ".tmp")


_PLATFORM = re.compile(r"(linux|osx|win)-\w+")


def remove(path: Path) -> None:
    """Remove a folder or file; out of the way first, so that a kill in between leaves nothing that looks whole."""
    if path.is_dir() and not path.is_symlink():
        aside = path.with_name(f".removed-{uuid.uuid4().hex[:8]}")
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def package_files(folder: Path) -> Iterator[Path]:
    """Give all package files of a channel folder."""
    for subdir in sorted(folder.iterdir()) if folder.is_dir() else ():
        if subdir.name == "noarch" or _PLATFORM.fullmatch(subdir.name):
            yield from sorted(subdir.glob("*.conda"))


def heal(output_dir: Path) -> list[str]:
    """Bring the engine's output folder, in which nothing may be running, into a state from which it can go on.

    Returns
    -------
    What was removed, in words; work folders and the like, which every run leaves, are not mentioned.
    """
    told = []
    for aside in list(output_dir.glob("**/.removed-*")):
        shutil.rmtree(aside, ignore_errors=True)
    for name in _TRANSIENT:
        if (output_dir / name).exists():
            remove(output_dir / name)
    for staging in (output_dir / "build_cache").glob("staging_*"):
        if not _whole(staging):
            remove(staging)
            told.append(f"half-written staging cache {staging.name[:20]}")
    for temporary in list(output_dir.glob("*/.tmp*")):
        remove(temporary)
    for package in list(package_files(output_dir)):
        try:
            archive.read(package)
        except IntegrityError:
            remove(package)
            told.append(f"damaged package {package.name}")
    return told


def _whole(staging: Path) -> bool:
    try:
        return isinstance(json.loads((staging / "metadata.json").read_text()), dict)
    except (OSError, ValueError):
        return False


def staging_caches(output_dir: Path) -> list[Path]:
    """Return the finished stagings that the engine would find."""
    return [path for path in sorted((output_dir / "build_cache").glob("staging_*")) if _whole(path)]


def drop_stagings(output_dir: Path) -> None:
    """Remove all finished stagings."""
    for staging in staging_caches(output_dir):
        remove(staging)


def drop_packages(output_dir: Path, keep: frozenset[str]) -> None:
    """Remove package files but those named in ``keep``."""
    for package in list(package_files(output_dir)):
        if package.name not in keep:
            remove(package)


def link(source: Path, target: Path) -> None:
    """Put a file into place in one step, sharing its blocks where the file system can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{target.name}")
    try:
        os.link(source, beside)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            beside.unlink()
        shutil.copy2(source, beside)
    os.replace(beside, target)
    beside.unlink(
        missing_ok=True
    )  # still there where both were the same file already: then a rename does nothing


def index(folder: Path, platform: str) -> None:
    """Write a channel's ``repodata.json`` anew from what is there; the platform's subdir exists even when empty.

    Everybody may read it then, whatever the umask.
    """
    for subdir in (platform, "noarch"):
        (folder / subdir).mkdir(parents=True, exist_ok=True)
    asyncio.run(index_fs(folder, force=True, write_zst=False, write_shards=False))
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
