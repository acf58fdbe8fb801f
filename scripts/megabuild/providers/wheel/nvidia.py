"""NVIDIA's wheels (libraries, headers, nvcc) as conda packages under conda-forge's names.

conda-forge's layout, flattened: files lie in lib/, include/ and bin/ of the environment, where ``$ORIGIN`` in their
RPATHs and nvcc's own search from its place both find them, and ``targets/`` links there.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from megabuild.errors import IntegrityError
from megabuild.providers.catalogue import NvidiaWheel
from megabuild.providers.compiler_packages import MACHINES, scripts, write_scripts
from megabuild.providers.package import Package
from megabuild.providers.wheels.lock import Lock, Wheel

_TARGETS = {"linux-64": "x86_64-linux", "linux-aarch64": "sbsa-linux"}
_FOLDERS = ("bin", "include", "lib", "nvvm")
_LIBRARY = re.compile(r"(lib.+?\.so)\.\d[\d.]*$")


def packages(
    lock: Lock, files: Mapping[str, Path], table: Mapping[str, NvidiaWheel], cuda: str, platform: str
) -> list[Package]:
    """Describe the packages of all of NVIDIA's wheels in a lock, and the compiler package that activates nvcc.

    Parameters
    ----------
    lock:
        Resolved from what a CUDA wheel of PyTorch needs.
    files:
        Downloaded wheels by sha256.
    table:
        Project name on PyPI to the packages made from its wheel; other projects are left out.
    cuda:
        CUDA version of the toolkit, "13.0".
    platform:
        Subdir of this machine.
    """
    chosen = {
        canonicalize_name(wheel.name): wheel
        for wheel in lock.wheels
        if canonicalize_name(wheel.name) in table
    }
    made = [
        Package(
            name="cuda-version",
            version=cuda,
            build="h{hash}_0",
            platform=platform,
            noarch="generic",
            constrains=(f"__cuda >={cuda.split('.')[0]}",),
            fill=_nothing,
            summary=f"Holds an environment to CUDA {cuda}",
        )
    ]
    for project, wheel in sorted(chosen.items()):
        made += _of_wheel(wheel, files[wheel.sha256], table, project, cuda, platform, lock.environment)
    versions = {package.name: package.version for package in made}
    if "cuda-nvcc-tools" in versions:
        made += _compiler(versions, cuda, platform)
    return made


def _of_wheel(
    wheel: Wheel,
    path: Path,
    table: Mapping[str, NvidiaWheel],
    project: str,
    cuda: str,
    platform: str,
    environment: Mapping[str, str],
) -> list[Package]:
    entry = table[project]
    version_of_cuda = f"cuda-version {cuda}.*"
    needs = tuple(
        table[canonicalize_name(requirement.name)].run
        for requirement in map(Requirement, wheel.requires)
        if (requirement.marker is None or requirement.marker.evaluate({**environment, "extra": ""}))
        and canonicalize_name(requirement.name) in table
    )

    def package(name: str, members: Sequence[str], depends: tuple[str, ...], dev: bool, kind: str) -> Package:
        return Package(
            name=name,
            version=wheel.version,
            build="h{hash}_0",
            platform=platform,
            depends=depends,
            run_exports={"weak": (f"{entry.run} >={wheel.version},<{_next(wheel.version)}",)} if dev else {},
            inputs={"wheel": wheel.sha256, "members": "\n".join(members)},
            fill=partial(_fill, path, members, _targets(name, platform)),
            summary=f"{kind} from PyPI's {wheel.file_name}",
        )

    everything = _members(path)
    if not entry.dev:
        return [package(entry.run, everything, (version_of_cuda, *needs), False, "Files")]
    libraries = [name for name in everything if _place(name).startswith("lib/") and ".so" in name]
    rest = [name for name in everything if name not in libraries]
    depends = (f"{entry.run} =={wheel.version}", version_of_cuda, *entry.depends)
    return [
        package(entry.run, libraries, (version_of_cuda, *needs), False, "Libraries"),
        package(entry.dev, [*rest, *(f"link:{name}" for name in libraries)], depends, True, "Headers"),
        *(_alias(alias, entry.dev, wheel.version, platform) for alias in entry.also),
    ]


def _next(version: str) -> str:
    return f"{int(version.split('.')[0]) + 1}.0a0"


def _alias(name: str, of: str, version: str, platform: str) -> Package:
    return Package(
        name=name,
        version=version,
        build="h{hash}_0",
        platform=platform,
        depends=(f"{of} =={version}",),
        fill=_nothing,
        summary=f"Another name for {of}",
    )


def _place(member: str) -> str:
    """Where a file of a wheel belongs: ``nvidia/cu13/lib/libcudart.so.13`` is ``lib/libcudart.so.13``."""
    return "/".join(PurePosixPath(member).parts[2:])


def _members(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise IntegrityError(f"{path.name} names a file outside itself: {name}")
    return sorted(
        name
        for name in names
        if name.startswith("nvidia/") and not name.endswith("/") and _place(name).split("/")[0] in _FOLDERS
        if not name.endswith(("__init__.py", ".pyc"))
    )


def _targets(name: str, platform: str) -> str | None:
    """The folder below ``targets/`` that links to the environment's own: in the package every CUDA build has."""
    return _TARGETS[platform] if name == "cuda-cudart-dev" else None


def _fill(wheel: Path, members: Sequence[str], target: str | None, prefix: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for member in members:
            linked = member.startswith("link:")
            place = prefix / _place(member.removeprefix("link:"))
            place.parent.mkdir(parents=True, exist_ok=True)
            if linked:
                # what a linker looks for, which a wheel cannot hold
                match = _LIBRARY.fullmatch(place.name)
                if match and not (place.parent / match[1]).is_symlink():
                    (place.parent / match[1]).symlink_to(place.name)
                continue
            with archive.open(member) as source, place.open("wb") as written:
                shutil.copyfileobj(source, written, 1 << 20)
            program = place.parent.name == "bin" or ".so" in place.name
            place.chmod(0o755 if program else 0o644)
        licences = [name for name in archive.namelist() if ".dist-info/licenses/" in name]
        for number, name in enumerate(() if any(m.startswith("link:") for m in members) else licences):
            folder = prefix / "share" / "licenses" / wheel.name.split("-")[0]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number or ''}{PurePosixPath(name).name}").write_bytes(archive.read(name))
    if target:
        (prefix / "targets" / target).mkdir(parents=True)
        for folder_name in ("include", "lib"):
            (prefix / "targets" / target / folder_name).symlink_to(f"../../{folder_name}")


def _compiler(versions: Mapping[str, str], cuda: str, platform: str) -> list[Package]:
    """conda-forge's cuda-nvcc: nvcc with all it needs, told which C++ compiler to use."""
    version = versions["cuda-nvcc-tools"]
    name = f"cuda-nvcc_{platform}"
    activate, deactivate = scripts(
        {"NVCC_PREPEND_FLAGS": "${NVCC_PREPEND_FLAGS:+$NVCC_PREPEND_FLAGS }-ccbin=${CXX}"}
    )
    needs = ("cuda-nvcc-tools", "cuda-nvvm-tools", "cuda-crt-dev", "cuda-cudart-dev", "cuda-cccl")
    return [
        Package(
            name=name,
            version=version,
            build="h{hash}_0",
            platform=platform,
            depends=(
                *(f"{need} =={versions[need]}" for need in needs),
                f"cuda-version {cuda}.*",
                f"gxx_{platform}",
            ),
            run_exports={"strong": (f"cuda-version >={cuda},<{int(cuda.split('.')[0]) + 1}",)},
            inputs={"activate": activate, "deactivate": deactivate, "machine": MACHINES[platform]},
            fill=partial(write_scripts, f"~{name}", activate, deactivate),
            summary=f"Activates nvcc {version} with the system's GCC",
        ),
        _alias("cuda-nvcc", name, version, platform),
    ]


def _nothing(_: Path) -> None:
    """A package of metadata only."""
