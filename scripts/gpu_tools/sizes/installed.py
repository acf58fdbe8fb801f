"""Measures an environment and assigns each file to the package that installed it."""

from __future__ import annotations

import os
import stat
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpu_tools.file_lists import FileList, find_lists, find_metadata_folders, read_list, source_of
from gpu_tools.site_packages import find_site_packages
from gpu_tools.sizes.inside import read_parts
from gpu_tools.sizes.tree import (
    NO_PACKAGE,
    ContentPart,
    Kind,
    Package,
    Parts,
    Sizes,
    find_requirers,
    sort_by_size,
)
from groundwork.errors import IntegrityError
from groundwork.text import counted, size

#: The folder of an environment in which slim keeps the original files.
BACKUP = ".megabuild-slim"


def is_environment(prefix: Path) -> bool:
    """Return whether a folder is a conda environment, a venv, or a ``pip install --target`` folder."""
    return (prefix / "conda-meta").is_dir() or bool(find_metadata_folders(prefix))


def measure_environment(prefix: Path) -> Sizes:
    """Measure an environment without importing or running anything.

    Symbolic links count as 0 bytes and are not followed; hard links count once. Listed files outside are ignored, and
    slim's originals, whose size is a remark.
    """
    remarks: list[str] = []
    lists = [*_read_lists(prefix, remarks)]
    installed = {listed.owner: listed for listed in reversed(lists)}  # pip's lists come first and win
    owners = {path: listed.owner for listed in lists for path in listed.files}
    files: dict[str, dict[str, Parts]] = defaultdict(dict)
    for owner, path, parts in _files(prefix, owners, remarks):
        files[owner][path] = parts
    requirers = _find_requirers(installed, prefix)
    packages = [
        Package(
            name=name,
            version=listed.version,
            files=files.pop(name, {}),
            required_by=tuple(sorted(requirers.get(name, ()))),
        )
        for name, listed in installed.items()
    ]
    packages += [Package(name=NO_PACKAGE, files=unowned) for unowned in files.values()]
    return Sizes(
        subject=str(prefix), kind="environment", packages=sort_by_size(packages), remarks=tuple(remarks)
    )


def _read_lists(prefix: Path, remarks: list[str]) -> Iterator[FileList]:
    """Yield the installers' lists; conda's packages also have a RECORD, which counts only without conda-meta."""
    lists: list[FileList] = []
    for file in find_lists(prefix):
        try:
            lists.append(read_list(prefix, file))
        except (IntegrityError, OSError, ValueError) as error:
            remarks.append(f"not read: {error}")
    of_conda = {path for listed in lists if listed.is_condas for path in listed.files}
    yield from (listed for listed in lists if listed.is_condas or listed.path not in of_conda)


def _find_requirers(installed: Mapping[str, FileList], prefix: Path) -> dict[str, set[str]]:
    pythons = [site.python.rstrip("t") for site in find_site_packages(prefix)]
    python = pythons[0] if pythons else f"3.{sys.version_info.minor}"

    of_pip = {name: listed.requires for name, listed in installed.items() if not listed.is_condas}
    requirers = find_requirers(installed, of_pip, python)
    for listed in installed.values():
        for name in listed.required_names if listed.is_condas else ():
            requirers.setdefault(name, set()).add(listed.owner)
    return requirers


def _files(prefix: Path, owners: Mapping[str, str], remarks: list[str]) -> Iterator[tuple[str, str, Parts]]:
    unread: Counter[str] = Counter()
    originals = links = 0

    def refused(error: OSError) -> None:
        unread[error.strerror or str(error)] += 1

    def leads_out(path: str) -> bool:
        return not Path(os.path.realpath(prefix / path)).is_relative_to(os.path.realpath(prefix))

    files: list[tuple[str, str, os.stat_result]] = []
    for folder, folders, names in os.walk(prefix, onerror=refused):
        for name in folders:
            path = os.path.relpath(os.path.join(folder, name), prefix)
            links += os.path.islink(prefix / path) and leads_out(path)
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), prefix)
            with suppress(OSError):  # deleted during the walk
                status = os.lstat(prefix / path)
                if path.startswith(f"{BACKUP}/"):
                    originals += status.st_size
                    continue
                owner = owners.get(path if path in owners else source_of(path), NO_PACKAGE)
                links += stat.S_ISLNK(status.st_mode) and owner != NO_PACKAGE and leads_out(path)
                files.append((owner, path, status))
    # count the hard link that a package owns: conda's cache may be in the same folder
    files.sort(key=lambda file: file[0] == NO_PACKAGE)
    seen: set[tuple[int, int]] = set()
    for owner, path, status in files:
        inode = (status.st_dev, status.st_ino)
        if not stat.S_ISREG(status.st_mode) or inode in seen:
            continue
        if status.st_nlink > 1:
            seen.add(inode)
        try:
            parts = read_parts(prefix / path, path, status.st_size)
        except OSError as error:
            refused(error)
            parts = {ContentPart(Kind.UNKNOWN): status.st_size}
        yield owner, path, parts
    if originals:
        remarks.append(f"not counted: {size(originals)} of originals, which slim keeps in {BACKUP}")
    if links:
        remarks.append(f"not counted: the targets of {counted(links, 'link')} out of the environment")
    remarks += [f"{counted(count, 'unreadable path')}: {reason}" for reason, count in unread.items()]
