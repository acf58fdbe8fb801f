"""The engine's output folder before a run: what fits is kept, what a killed run left half-done is removed.

Measured with rattler-build 0.73: a staging cache without ``metadata.json`` makes the engine build everything again and
then fail; a package appears by rename, but stands there before its test has run; what was unpacked for a test stays in
the temporary folder.

Build scripts may write there too, so nothing in it is followed, waited for or made readable to others: links and pipes
where the driver looks are removed first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from groundwork import channel_folder, files
from megabuild.engine import archive

#: Folders that only a running engine needs.
_TRANSIENT = ("bld", "test", "broken")
_STAGINGS, _METADATA = "build_cache", "metadata.json"
#: In a task's state folder, where no build can write: the sizes of finished stagings' files, as they were flushed.
_SEALS = "stagings.json"
#: Beside the packages: what each of them will be made from, written before the engine starts.
INPUTS = ".megabuild-inputs"
#: In a task's state folder: packages that passed their tests, while they are normalised and verified. What no
#: build can write.
FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """The engine's output folder, ready for a run."""

    healed: tuple[str, ...]  #: what was removed, in words
    #: packages, by path below the folder, that an interrupted run built from the same inputs. A package file appears
    #: before its test has run, so nobody knows whether they pass.
    untested: tuple[str, ...]


def prepare_output(
    state: Path, *, inputs: Mapping[str, str], published: Sequence[Path], platform: str
) -> Leftovers:
    """Leave in a task's state folder what belongs to this run, and nothing half-done.

    ``inputs`` says by file name what its packages are made from; ``published`` packages are copied in, so that the
    engine finds them and their dependants resolve.
    """
    out = channel_folder.own_folder(state / "out")
    for rest in (*state.glob(".removed-*"), state / "tmp", state / FINISHED):
        if rest.is_symlink() or rest.exists():
            files.remove(rest)
    healed = heal(out)
    given = {path.name for path in published}
    former = _read_inputs(out / INPUTS)
    fitting = {name for name, value in inputs.items() if former.get(name) == value} - given
    # A narrowed run says nothing about packages outside its plan: a later one may still want them.
    elsewhere = former.keys() - inputs.keys()
    channel_folder.drop_packages(out, keep=frozenset(fitting | elsewhere))
    present = {path.name: path.relative_to(out).as_posix() for path in channel_folder.package_files(out)}
    for path in published:
        files.copy(path, out / path.parent.name / path.name)  # a build could write into what it shares
    channel_folder.write_index(out, platform)
    noted = {**{name: former[name] for name in present if name in elsewhere}, **inputs}
    files.write(out / INPUTS, "".join(f"{name} {value}\n" for name, value in sorted(noted.items())))
    untested = tuple(path for name, path in present.items() if name in fitting)
    return Leftovers(healed=tuple(healed), untested=untested)


def _read_inputs(path: Path) -> dict[str, str]:
    try:
        content = (files.read_untrusted(path) or b"").decode()
        return dict(line.split(" ", 1) for line in content.splitlines())
    except ValueError:
        return {}


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

    What was removed is returned in words; work folders and the like, which every run leaves, are not mentioned.
    """
    removed = list(_remove_foreign(output_dir))
    for place in (output_dir, *channel_folder.subdirs(output_dir), output_dir / _STAGINGS):
        for rest in channel_folder.entries(place):
            if rest.name.startswith(".removed-"):
                shutil.rmtree(rest, ignore_errors=True)
            elif rest.name.startswith(".tmp") or (place == output_dir and rest.name in _TRANSIENT):
                files.remove(rest)
    seals = _read_seals(output_dir)
    for staging in _stagings(output_dir):
        if not _is_complete(staging, seals):
            files.remove(staging)
            if seals.pop(staging.name, None):  # one of that name may come again, with other sizes
                files.write(output_dir.parent / _SEALS, json.dumps(seals))
            removed.append(f"half-written staging cache {staging.name[:20]}")
    for package in list(channel_folder.package_files(output_dir)):
        if not archive.is_readable(package):
            files.remove(package)
            removed.append(f"damaged package {package.name}")
    return removed


def _stagings(output_dir: Path) -> list[Path]:
    return [
        path for path in channel_folder.entries(output_dir / _STAGINGS) if path.name.startswith("staging_")
    ]


def _has_metadata(staging: Path) -> bool:
    try:
        metadata = json.loads(files.read_untrusted(staging / _METADATA) or b"")
        links = staging.is_symlink() or (staging / "prefix").is_symlink()
        return not links and isinstance(metadata, dict)
    except ValueError:
        return False


def _is_complete(staging: Path, seals: Mapping[str, str]) -> bool:
    return _has_metadata(staging) and seals.get(staging.name) == _sizes(staging)


def seal_stagings(output_dir: Path) -> None:
    """Flush stagings that the engine has just finished to the disk, with their tree, and note their files' sizes.

    A power cut leaves files of no length with their dates, and headers without a word would end up in packages.
    """
    seals = _read_seals(output_dir)
    new = [
        staging for staging in _stagings(output_dir) if staging.name not in seals and _has_metadata(staging)
    ]
    if new:
        files.sync_disk(output_dir)
        seals |= {staging.name: _sizes(staging) for staging in new}
        files.write(output_dir.parent / _SEALS, json.dumps(seals))


def _read_seals(output_dir: Path) -> dict[str, str]:
    try:
        seals = json.loads((output_dir.parent / _SEALS).read_bytes())
    except (OSError, ValueError):
        return {}
    return seals if isinstance(seals, dict) else {}


def _sizes(staging: Path) -> str:
    """Return a digest over the names and sizes of what a staging has installed."""
    digest = hashlib.sha256()
    for folder, folders, names in os.walk(staging / "prefix"):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            digest.update(
                f"{os.path.relpath(path, staging)}\0{os.lstat(path).st_size}\0".encode(errors="replace")
            )
    return digest.hexdigest()


def staging_caches(output_dir: Path) -> list[Path]:
    """Return the finished stagings that the engine would find."""
    seals = _read_seals(output_dir)
    return [path for path in _stagings(output_dir) if _is_complete(path, seals)]


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
