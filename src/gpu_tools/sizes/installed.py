"""Measures an environment and assigns each file to the package that installed it."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from packaging.version import InvalidVersion, Version

from gpu_tools.contents import BACKUP, Contents, scan
from gpu_tools.file_lists import FileList
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
from gpu_tools.subject_kind import SubjectKind
from groundwork.text import counted


def measure_environment(prefix: Path) -> Sizes:
    """Measure an environment without importing or running anything.

    Symbolic links count as 0 bytes and are not followed; hard links count once. Listed files outside are ignored, and
    slim's originals.
    """
    remarks: list[str] = []
    contents = scan(prefix, name=str(prefix), remarks=remarks)
    # conda's packages also have a RECORD, which counts only without conda-meta
    of_conda: set[str] = set()
    for listed in contents.lists:
        if listed.is_condas:
            of_conda.update(listed.files)
    lists = [listed for listed in contents.lists if listed.is_condas or listed.path not in of_conda]
    installed = _choose_lists(contents, lists, remarks)
    files = _read_files(contents, remarks)
    requires = {name: listed.requires for name, listed in installed.items()}
    requirers = find_requirers(installed, requires, _find_python(prefix))
    packages = []
    for name, listed in installed.items():
        packages.append(
            Package(
                name=name,
                version=listed.version,
                files=files.pop(name, {}),
                required_by=tuple(sorted(requirers.get(name, ()))),
            )
        )
    packages += [Package(name=NO_PACKAGE, files=unowned) for unowned in files.values()]
    if (prefix / BACKUP).is_dir():
        remarks.append(f"not counted: slim's originals in {BACKUP}")
    if contents.outside:
        count = counted(len(contents.outside), "link")
        remarks.append(f"not counted: the targets of {count} out of the environment")
    return Sizes(
        subject=str(prefix),
        kind=SubjectKind.ENVIRONMENT,
        packages=sort_by_size(packages),
        remarks=tuple(remarks),
    )


def _find_python(prefix: Path) -> str:
    """Return the version of an environment's Python; of this one if it has none."""
    for site in find_site_packages(prefix):
        return site.python.rstrip("t")
    return f"3.{sys.version_info.minor}"


def _choose_lists(contents: Contents, lists: Sequence[FileList], remarks: list[str]) -> dict[str, FileList]:
    """Return the list of each package by its name; pip's come before conda's.

    conda leaves the RECORD of a version that pip has replaced. Of several RECORDs, the one with the fewest missing
    files counts, then the one of the newest version.
    """
    by_owner: dict[str, list[FileList]] = {}
    for listed in lists:
        by_owner.setdefault(listed.owner, []).append(listed)
    chosen = {}
    for owner, several in by_owner.items():
        records = [listed for listed in several if not listed.is_condas] or several
        newest_first = sorted(records, key=_version, reverse=True)
        best = min(newest_first, key=partial(_count_missing, contents))
        chosen[owner] = best
        others = [listed.version for listed in newest_first if listed is not best]
        if others:
            left = f"metadata of {', '.join(others)} was left behind"
            remarks.append(f"{owner}: {left}; counted as {best.version}")
    return chosen


def _count_missing(contents: Contents, listed: FileList) -> int:
    return sum(1 for path in listed.files if path not in contents.every)


def _version(listed: FileList) -> Version:
    try:
        return Version(listed.version)
    except InvalidVersion:
        return Version("0")


def _read_files(contents: Contents, remarks: list[str]) -> dict[str, dict[str, Parts]]:
    """Return the parts of all files by package and path."""
    files: dict[str, dict[str, Parts]] = defaultdict(dict)
    seen: set[tuple[int, int]] = set()
    unread: list[OSError] = []
    # count the hard link that a package owns: conda's cache may be in the same folder
    for path in sorted(contents.every, key=lambda path: path not in contents.owners):
        status = contents.every[path]
        inode = (status.st_dev, status.st_ino)
        if contents.is_link(path) or inode in seen:
            continue
        seen.add(inode)
        try:
            parts = read_parts(contents.root / path, path, status.st_size)
        except OSError as error:
            unread.append(error)
            parts = {ContentPart(Kind.UNKNOWN): status.st_size}
        files[contents.owners.get(path, NO_PACKAGE)][path] = parts
    if unread:
        remarks.append(f"{counted(len(unread), 'unreadable file')}: {unread[0]}")
    return files
