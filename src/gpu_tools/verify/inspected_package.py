"""Opens conda packages, wheels and environments for verification, without running or importing anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cuda_code.kernels import KERNELS
from gpu_tools.subject_kind import SubjectKind
from gpu_tools.unpacked_package import unpack_package
from gpu_tools.verify.build_target import BuildTarget, read_conda_index
from gpu_tools.verify.inspected_environment import read_environment
from gpu_tools.verify.subject import Subject, name_module, read_dist_info, sort_by_module
from groundwork import files, wheel_file
from groundwork.damage import reading_archive
from groundwork.names import package_name


@contextmanager
def open_subject(path: Path) -> Iterator[Subject]:
    """Open a package, a wheel or an environment; packages are unpacked to a temporary folder.

    Raises UsageError: ``path`` does not exist or is something else.
    Raises IntegrityError: The package or wheel is damaged.
    """
    if path.is_dir():
        yield read_environment(path)
        return
    with unpack_package(path) as (folder, kind):
        module = name_module(_name_distribution(path.name, kind))
        with reading_archive(path):
            target = _read_target(folder, kind, path.name)
        found = []
        for file in files.below(folder):
            if ".so" in file.name and file.is_file() and not file.is_symlink():
                found.append(file)
        libraries = sort_by_module(folder, found)
        modules = set(libraries)
        if module in KERNELS:
            modules.add(module)
        yield Subject(name=path.name, libraries=libraries, targets=dict.fromkeys(modules, target))


def _name_distribution(package: str, kind: SubjectKind) -> str:
    if kind is SubjectKind.WHEEL:
        return package.partition("-")[0]
    return package_name(package)


def _read_target(folder: Path, kind: SubjectKind, package: str) -> BuildTarget:
    """Return the target in the metadata of an unpacked package; ``package`` is its file name."""
    if kind is SubjectKind.WHEEL:
        module = name_module(_name_distribution(package, kind))
        return read_dist_info(wheel_file.metadata(folder, package), module)
    index = (folder / "info/index.json").read_text("utf-8")
    return read_conda_index(json.loads(index))
