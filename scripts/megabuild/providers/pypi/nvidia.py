"""Turn NVIDIA's wheels (libraries, headers, nvcc) into conda packages with conda-forge's names.

The layout is conda-forge's, flattened: files are in lib/, include/ and bin/ of the environment, and ``targets/`` links
to these folders. ``$ORIGIN`` in RPATHs and nvcc, which searches relative to itself, both find them there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

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
_NVCC_NEEDS = ("cuda-nvcc-tools", "cuda-nvvm-tools", "cuda-crt-dev", "cuda-cudart-dev", "cuda-cccl")
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
    chosen = {project: wheel for wheel in lock.wheels if (project := canonicalize_name(wheel.name)) in table}
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
    for project, wheel in sorted(chosen.items()):
        needed = (canonicalize_name(requirement.name) for requirement in wheel.needs(lock.environment))
        needs = (f"cuda-version {cuda}.*", *(table[name].run for name in needed if name in table))
        path = wheel.path(folder)
        note = noted(notes, wheel.sha256) if not path.exists() else None
        if note:
            everything = _packaged(note.members)
        else:
            with reading(path, _DAMAGED), open_zip(path) as archive:
                everything = _packaged(member.filename for member in members(archive))
        described += _of_wheel(wheel, path, everything, table[project], needs, platform)
    versions = {package.name: package.version for package in described}
    if "cuda-nvcc-tools" in versions:
        # as on conda-forge: nvcc, its dependencies, and as host compiler the environment's
        version = versions["cuda-nvcc-tools"]
        exact = [f"{need} =={versions[need]}" for need in _NVCC_NEEDS]
        compiler = nvcc(version, cuda, platform, {"NVCC_PREPEND_FLAGS": _NVCC_FLAGS}, exact, "")
        described += [compiler, alias("cuda-nvcc", compiler.name, version, platform)]
    return described


def _of_wheel(
    wheel: Wheel,
    path: Path,
    everything: Sequence[str],
    entry: NvidiaWheel,
    needs: tuple[str, ...],
    platform: str,
) -> list[LocalPackage]:
    version = wheel.version

    def package(name: str, chosen: Sequence[str], depends: tuple[str, ...], kind: str) -> LocalPackage:
        # cuda-cudart-dev has the links in targets/, because every CUDA build requires it
        target = _TARGETS[platform] if name == "cuda-cudart-dev" else None
        exported = f"{entry.run} >={version},<{int(version.split('.')[0]) + 1}.0a0"
        return LocalPackage(
            name=name,
            version=version,
            platform=platform,
            depends=depends,
            run_exports={"weak": (exported,)} if name == entry.dev else {},
            inputs={"wheel": wheel.sha256, "members": "\n".join(chosen)},
            size=wheel.size,
            fill=partial(_fill, path, chosen, target),
            summary=f"{kind} from PyPI's {wheel.file_name}",
        )

    if not entry.dev:
        return [package(entry.run, everything, needs, "Files")]
    libraries = [name for name in everything if _prefix_path(name).startswith("lib/") and ".so" in name]
    headers = [name for name in everything if name not in libraries]
    depends = (f"{entry.run} =={version}", needs[0], *entry.depends)
    return [
        package(entry.run, libraries, needs, "Libraries"),
        package(entry.dev, [*headers, *(f"{_LINK}{name}" for name in libraries)], depends, "Headers"),
        *(alias(name, entry.dev, version, platform) for name in entry.also),
    ]


def _prefix_path(member: str) -> str:
    """Return a member's path in the prefix: ``lib/libcudart.so.13`` of ``nvidia/cu13/lib/libcudart.so.13``."""
    return "/".join(PurePosixPath(member).parts[2:])


def _packaged(names: Iterable[str]) -> list[str]:
    return sorted(
        name
        for name in names
        if name.startswith("nvidia/") and _prefix_path(name).split("/")[0] in _FOLDERS
        if not name.endswith(("/", "__init__.py", ".pyc"))
    )


def _fill(wheel: Path, chosen: Sequence[str], target: str | None, prefix: Path) -> None:
    with reading(wheel, _DAMAGED), open_zip(wheel) as archive:
        for member in chosen:
            file = prefix / _prefix_path(member.removeprefix(_LINK))
            file.parent.mkdir(parents=True, exist_ok=True)
            if member.startswith(_LINK):
                match = _LIBRARY.fullmatch(file.name)
                if match and not (file.parent / match[1]).is_symlink():
                    (file.parent / match[1]).symlink_to(file.name)
                continue
            with archive.open(member) as source, file.open("wb") as written:
                shutil.copyfileobj(source, written, 1 << 20)
            file.chmod(0o755 if file.parent.name == "bin" or ".so" in file.name else 0o644)
        linked = any(member.startswith(_LINK) for member in chosen)
        licences = [] if linked else [name for name in archive.namelist() if ".dist-info/licenses/" in name]
        for number, name in enumerate(licences):
            folder = prefix / "share" / "licenses" / wheel.name.split("-")[0]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number or ''}{PurePosixPath(name).name}").write_bytes(read_member(archive, name))
    if target:
        (prefix / "targets" / target).mkdir(parents=True)
        for name in ("include", "lib"):
            (prefix / "targets" / target / name).symlink_to(f"../../{name}")
