"""Healing the engine's output folder: what a killed run left half-done would break the next one.

Measured with rattler-build 0.73: a staging cache without ``metadata.json`` makes the engine build everything again and
then fail; a package appears by rename, but stands there before its test has run; what was unpacked for a test stays in
the temporary folder.

Build scripts may write there too, so nothing in it is followed, waited for or made readable to others: links and pipes
where the driver looks are removed first.
"""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from megabuild import channel_folder, files
from megabuild.engine import archive
from megabuild.errors import IntegrityError

#: Folders that only a running engine needs.
_TRANSIENT = ("bld", "test", "broken")
_STAGINGS, _METADATA = "build_cache", "metadata.json"


def _remove_foreign(folder: Path) -> Iterator[str]:
    """Remove what is neither file nor folder from where the driver looks; give what that was, in words."""
    for place in (folder, *channel_folder.subdirs(folder), folder / _STAGINGS):
        for path in channel_folder.entries(place):
            mode = path.lstat().st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                path.unlink()
                yield f"{path.relative_to(folder)}, neither a file nor a folder"


def heal(output_dir: Path) -> list[str]:
    """Bring the engine's output folder, in which nothing may be running, into a state from which it can go on.

    Returns
    -------
    What was removed, in words; work folders and the like, which every run leaves, are not mentioned.
    """
    told = list(_remove_foreign(output_dir))
    for place in (output_dir, *channel_folder.subdirs(output_dir), output_dir / _STAGINGS):
        for rest in channel_folder.entries(place):
            if rest.name.startswith(".removed-"):
                shutil.rmtree(rest, ignore_errors=True)
            elif rest.name.startswith(".tmp") or (place == output_dir and rest.name in _TRANSIENT):
                files.remove(rest)
    for staging in _stagings(output_dir):
        if not _whole(staging):
            files.remove(staging)
            told.append(f"half-written staging cache {staging.name[:20]}")
    for package in list(channel_folder.package_files(output_dir)):
        try:
            archive.read(package)
        except IntegrityError:
            files.remove(package)
            told.append(f"damaged package {package.name}")
    return told


def _stagings(output_dir: Path) -> list[Path]:
    return [
        path for path in channel_folder.entries(output_dir / _STAGINGS) if path.name.startswith("staging_")
    ]


def _whole(staging: Path) -> bool:
    try:
        with files.open_regular(staging / _METADATA) as file:
            return not staging.is_symlink() and isinstance(json.loads(file.read()), dict)
    except (OSError, ValueError, IntegrityError):
        return False


def staging_caches(output_dir: Path) -> list[Path]:
    """Return the finished stagings that the engine would find."""
    return [path for path in _stagings(output_dir) if _whole(path)]


def drop_stagings(output_dir: Path) -> None:
    """Remove all finished stagings."""
    for staging in staging_caches(output_dir):
        files.remove(staging)
