"""The engine's output folder before a run: what fits is kept, what a killed run left half-done is removed.

Measured with rattler-build 0.73: a staging cache without ``metadata.json`` makes the engine build everything again and
then fail; a package appears by rename, before its test has run; what was unpacked for a test stays in the temporary
folder.

Build scripts may write there too, so nothing in it is followed, waited for or made readable to others: links and pipes
where the driver looks are removed first.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from groundwork import channel_folder, files
from megabuild.engine import archive

#: Folders that only a running engine needs.
_TRANSIENT = ("bld", "test", "broken")
_STAGINGS = "build_cache"
#: In a task's state folder, where no build can write: the names of the stagings that were flushed to the disk.
_SEALS = "stagings.json"
#: Beside the packages: what each of them is made from, written before the engine starts.
INPUTS = ".megabuild-inputs"
#: In a task's state folder: packages that passed their tests, while they are normalised and verified.
FINISHED = "finished"


def prepare_output(
    state: Path, *, inputs: Mapping[str, str], published: Sequence[Path], platform: str
) -> list[str]:
    """Leave in a task's state folder what belongs to this run, and nothing half-done.

    Returns packages that an interrupted run built from the same inputs and may not have tested, by path below ``out``.
    ``inputs`` says by file name what its packages are made from; ``published`` packages are copied in, so that the
    engine finds them and their dependants resolve.
    """
    out = channel_folder.own_folder(state / "out")
    for rest in (*state.glob(".removed-*"), state / "tmp", state / FINISHED):
        if rest.is_symlink() or rest.exists():
            files.remove(rest)
    heal(out)
    try:
        lines = (files.read_untrusted(out / INPUTS) or b"").decode().splitlines()
        former = dict(line.split(" ", 1) for line in lines)
    except ValueError:
        former = {}
    fitting = {name for name, value in inputs.items() if former.get(name) == value}
    fitting -= {path.name for path in published}
    # A narrowed run says nothing about packages outside its plan: a later one may still want them.
    elsewhere = former.keys() - inputs.keys()
    channel_folder.drop_packages(out, keep=frozenset(fitting | elsewhere))
    present = {path.name: path.relative_to(out).as_posix() for path in channel_folder.package_files(out)}
    for path in published:
        files.copy(path, out / path.parent.name / path.name)  # a build could write into what it shares
    channel_folder.write_index(out, platform)
    noted = {**{name: former[name] for name in present if name in elsewhere}, **inputs}
    files.write(out / INPUTS, "".join(f"{name} {value}\n" for name, value in sorted(noted.items())))
    return [path for name, path in present.items() if name in fitting]


def heal(output_dir: Path) -> list[str]:
    """Bring the engine's output folder, in which nothing may be running, into a state from which it can continue.

    What was removed is returned in words; work folders and the like, which every run leaves, are not mentioned.
    """
    removed = []
    for folder in (output_dir, *channel_folder.subdirs(output_dir), output_dir / _STAGINGS):
        for path in channel_folder.entries(folder):
            mode = path.lstat().st_mode
            if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                path.unlink()
                removed.append(f"{path.relative_to(output_dir)}, neither a file nor a folder")
            elif path.name.startswith(".removed-"):
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(".tmp") or (folder == output_dir and path.name in _TRANSIENT):
                files.remove(path)
    sealed = staging_caches(output_dir)
    for staging in _stagings(output_dir):
        if staging not in sealed:
            files.remove(staging)
            removed.append(f"half-written staging cache {staging.name[:20]}")
    if output_dir.is_dir():  # a name that is gone may come again, half-written
        _write_seals(output_dir, sealed)
    for package in list(channel_folder.package_files(output_dir)):
        if not archive.is_readable(package):
            files.remove(package)
            removed.append(f"damaged package {package.name}")
    return removed


def _stagings(output_dir: Path) -> list[Path]:
    paths = channel_folder.entries(output_dir / _STAGINGS)
    return [path for path in paths if path.name.startswith("staging_")]


def _has_metadata(staging: Path) -> bool:
    try:
        metadata = json.loads(files.read_untrusted(staging / "metadata.json") or b"")
    except ValueError:
        return False
    links = staging.is_symlink() or (staging / "prefix").is_symlink()
    return not links and isinstance(metadata, dict)


def _write_seals(output_dir: Path, stagings: Sequence[Path]) -> None:
    files.write(output_dir.parent / _SEALS, json.dumps([path.name for path in stagings]))


def seal_stagings(output_dir: Path) -> None:
    """Flush stagings that the engine has just finished to the disk, with their tree, and note their names.

    A power cut leaves files of no length with their dates, and headers without a word would end up in packages.
    """
    finished = [staging for staging in _stagings(output_dir) if _has_metadata(staging)]
    if finished and finished != staging_caches(output_dir):
        os.sync()
        _write_seals(output_dir, finished)


def staging_caches(output_dir: Path) -> list[Path]:
    """Return the finished stagings that the engine would find."""
    try:
        names = json.loads((output_dir.parent / _SEALS).read_bytes())
    except (OSError, ValueError):
        return []
    names = names if isinstance(names, list) else []
    return [path for path in _stagings(output_dir) if path.name in names and _has_metadata(path)]


def take_stagings(fetched: Path, output_dir: Path) -> None:
    """Move finished stagings that were made elsewhere to where the engine finds them."""
    target = channel_folder.own_folder(channel_folder.own_folder(output_dir) / _STAGINGS)
    for staging in channel_folder.entries(fetched):
        if staging.name.startswith("staging_") and _has_metadata(staging):
            staging.rename(target / staging.name)
    seal_stagings(output_dir)


def drop_stagings(output_dir: Path) -> None:
    """Remove all finished stagings."""
    for staging in _stagings(output_dir):
        files.remove(staging)
    (output_dir.parent / _SEALS).unlink(missing_ok=True)
