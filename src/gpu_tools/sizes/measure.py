"""Measures an environment, a wheel or a conda package; packages are unpacked to a temporary folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpu_tools.file_lists import is_environment
from gpu_tools.sizes.installed import measure_environment
from gpu_tools.sizes.tree import Sizes, sort_by_size
from gpu_tools.subject_kind import SubjectKind
from gpu_tools.unpacked_package import unpack_package

#: A conda package's metadata, which are not installed.
_INFO = "info/"


def measure(path: Path) -> Sizes:
    """Measure an environment, a wheel or a conda package, without the package's ``info`` folder.

    Raises UsageError: ``path`` is none of these.
    Raises IntegrityError: The package or wheel is damaged.
    """
    if path.is_dir() and is_environment(path):
        return measure_environment(path)
    with unpack_package(path) as (root, kind):
        sizes = measure_environment(root)
    packages = []
    for package in sizes.packages:
        files = dict(package.files)
        if kind is SubjectKind.CONDA_PACKAGE:
            files = {name: parts for name, parts in files.items() if not name.startswith(_INFO)}
        if files:
            packages.append(replace(package, files=files, download=path.stat().st_size))
    return replace(sizes, subject=path.name, kind=kind, packages=sort_by_size(packages))
