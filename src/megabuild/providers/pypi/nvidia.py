"""Turn NVIDIA's wheels (libraries, headers, nvcc) into conda packages with conda-forge's names.

The layout is conda-forge's, flattened: files are in lib/, include/ and bin/ of the environment, and ``targets/`` links
to these folders. ``$ORIGIN`` in RPATHs and nvcc, which searches relative to itself, both find them there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

from packaging.utils import canonicalize_name

from groundwork.damage import reading
from groundwork.network.wheel_contents import noted
from groundwork.zip_archive import open_zip, read_member
from megabuild.providers.catalogue import NvidiaWheel
from megabuild.providers.local.compilers import nvcc
from megabuild.providers.local.package import LocalPackage, alias
from megabuild.providers.pypi.lock import Lock, Wheel
from megabuild.providers.pypi.unpack import members

_TARGETS = {"linux-64": "x86_64-linux", "linux-aarch64": "sbsa-linux"}
_FOLDERS = ("bin", "include", "lib", "nvvm")
_LIBRARY = re.compile(r"(lib.+?\.so)\.\d[\d.]*$")
#: Marks a library's linker symlink in a list of members: wheels cannot contain symlinks.
_LINK = "link:"
_NVCC = "cuda-nvcc-tools"
#: The package with the links in ``targets/``, because every CUDA build requires it.
_LINKED = "cuda-cudart-dev"
_NVCC_NEEDS = (_NVCC, "cuda-nvvm-tools", "cuda-crt-dev", _LINKED, "cuda-cccl")
_NVCC_FLAGS = "${NVCC_PREPEND_FLAGS:+$NVCC_PREPEND_FLAGS }-ccbin=${CXX}"
_DAMAGED = "delete the wheel: the next run downloads it again"


def packages(
    lock: Lock,
    folder: Path,
    table: Mapping[str, NvidiaWheel],
    cuda: str,
    platform: str,
    notes: Path,
) -> list[LocalPackage]:
    """Describe the packages of NVIDIA's wheels in a lock, and the compiler package that activates nvcc.

    ``folder`` has the wheels; ``notes`` is the folder with the member lists of wheels not downloaded. Projects
    that are not in ``table`` are skipped. ``cuda`` is the toolkit's version, "13.0".
    """
    described = [
        LocalPackage(
            name="cuda-version",
            version=cuda,
            platform=platform,
            noarch="generic",
            constrains=(f"__cuda >={cuda.split('.')[0]}",),
            summary=f"Holds an environment to CUDA {cuda}",
        )
    ]
    chosen = {canonicalize_name(wheel.name): wheel for wheel in lock.wheels}
    for project in sorted(chosen.keys() & table.keys()):
        wheel = chosen[project]
        needs = [f"cuda-version {cuda}.*"]
        for requirement in wheel.needs(lock.environment):
            needed = table.get(canonicalize_name(requirement.name))
            if needed is not None:
                needs.append(needed.run)
        packages_of = WheelPackages(wheel, wheel.path(folder), table[project], tuple(needs), platform)
        described += packages_of.describe(_members(wheel, folder, notes))
    return [*described, *_compiler(described, cuda, platform)]


def _members(wheel: Wheel, folder: Path, notes: Path) -> list[str]:
    """Return the files of a wheel that belong into packages, from its note if it is not downloaded."""
    path = wheel.path(folder)
    if not path.exists():
        note = noted(notes, wheel.sha256)
        if note is not None:
            return _packaged(note.members)
    with reading(path, _DAMAGED), open_zip(path) as archive:
        return _packaged(member.filename for member in members(archive))


def _compiler(described: Iterable[LocalPackage], cuda: str, platform: str) -> list[LocalPackage]:
    """Describe the compiler package as on conda-forge: nvcc, its dependencies, the environment's host compiler."""
    versions = {package.name: package.version for package in described}
    if _NVCC not in versions:
        return []
    version = versions[_NVCC]
    exact = [f"{need} =={versions[need]}" for need in _NVCC_NEEDS]
    compiler = nvcc(version, cuda, platform, {"NVCC_PREPEND_FLAGS": _NVCC_FLAGS}, exact, "")
    return [compiler, alias("cuda-nvcc", compiler.name, version, platform)]


@dataclass(frozen=True)
class WheelPackages:
    """The packages made from one wheel."""

    wheel: Wheel
    path: Path
    entry: NvidiaWheel
    needs: tuple[str, ...]
    platform: str

    def describe(self, everything: Sequence[str]) -> list[LocalPackage]:
        """Describe them, from the names of all files that belong into them."""
        entry = self.entry
        if not entry.dev:
            return [self._package(entry.run, everything, self.needs, "Files")]
        libraries: list[str] = []
        headers: list[str] = []
        for name in everything:
            is_library = _prefix_path(name).startswith("lib/") and ".so" in name
            if is_library:
                libraries.append(name)
            else:
                headers.append(name)
        links = [f"{_LINK}{name}" for name in libraries]
        depends = (f"{entry.run} =={self.wheel.version}", self.needs[0], *entry.depends)
        described = [
            self._package(entry.run, libraries, self.needs, "Libraries"),
            self._package(entry.dev, [*headers, *links], depends, "Headers"),
        ]
        for name in entry.also:
            described.append(alias(name, entry.dev, self.wheel.version, self.platform))
        return described

    def _package(self, name: str, chosen: Sequence[str], depends: tuple[str, ...], kind: str) -> LocalPackage:
        version = self.wheel.version
        exports: dict[str, tuple[str, ...]] = {}
        if name == self.entry.dev:
            next_major = int(version.split(".")[0]) + 1
            exports["weak"] = (f"{self.entry.run} >={version},<{next_major}.0a0",)
        target = None
        if name == _LINKED:
            target = _TARGETS[self.platform]
        return LocalPackage(
            name=name,
            version=version,
            platform=self.platform,
            depends=depends,
            run_exports=exports,
            inputs={"wheel": self.wheel.sha256, "members": "\n".join(chosen)},
            size=self.wheel.size,
            fill=partial(_fill, self.path, chosen, target),
            summary=f"{kind} from PyPI's {self.wheel.file_name}",
        )


def _prefix_path(member: str) -> str:
    """Return a member's path in the prefix: ``lib/libcudart.so.13`` of ``nvidia/cu13/lib/libcudart.so.13``."""
    return "/".join(PurePosixPath(member).parts[2:])


def _packaged(names: Iterable[str]) -> list[str]:
    packaged: list[str] = []
    for name in sorted(names):
        folder = _prefix_path(name).split("/")[0]
        is_needed = folder in _FOLDERS and not name.endswith(("/", "__init__.py", ".pyc"))
        if is_needed and name.startswith("nvidia/"):
            packaged.append(name)
    return packaged


def _fill(wheel: Path, chosen: Sequence[str], target: str | None, prefix: Path) -> None:
    with reading(wheel, _DAMAGED), open_zip(wheel) as archive:
        for member in chosen:
            if member.startswith(_LINK):
                _link_library(prefix / _prefix_path(member.removeprefix(_LINK)))
            else:
                _extract(archive, member, prefix / _prefix_path(member))
        if not any(member.startswith(_LINK) for member in chosen):
            _write_licences(archive, prefix / "share" / "licenses" / wheel.name.split("-")[0])
    if target:
        (prefix / "targets" / target).mkdir(parents=True)
        for name in ("include", "lib"):
            (prefix / "targets" / target / name).symlink_to(f"../../{name}")


def _link_library(library: Path) -> None:
    """Make the link of a linker, ``libcudart.so`` for ``libcudart.so.13``."""
    library.parent.mkdir(parents=True, exist_ok=True)
    match = _LIBRARY.fullmatch(library.name)
    if match and not (library.parent / match[1]).is_symlink():
        (library.parent / match[1]).symlink_to(library.name)


def _extract(archive: ZipFile, member: str, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, file.open("wb") as written:
        shutil.copyfileobj(source, written, 1 << 20)
    is_executable = file.parent.name == "bin" or ".so" in file.name
    file.chmod(0o755 if is_executable else 0o644)


def _write_licences(archive: ZipFile, folder: Path) -> None:
    licences = [name for name in archive.namelist() if ".dist-info/licenses/" in name]
    for number, name in enumerate(licences):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{number or ''}{PurePosixPath(name).name}"
        file.write_bytes(read_member(archive, name))
