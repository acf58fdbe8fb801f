"""An opened package, wheel or environment, and the modules that its libraries belong to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cuda_code.kernels import KERNELS
from gpu_tools.verify.build_target import BuildTarget, read_wheel_metadata
from gpu_tools.verify.installed_torch import InstalledTorch, library_name
from groundwork.files import read_text

_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages/([^/.]+)")
TORCH_LIBRARY = re.compile(r"lib(?:torch|c10|caffe2|shm)\w*\.so")
TORCH = "torch"
#: A folder with a library of torch up to 2.6.
FUNCTORCH = "functorch"


@dataclass(frozen=True, kw_only=True)
class Damage:
    """Unreadable metadata."""

    path: str
    module: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An opened package, wheel or environment."""

    name: str  #: Name in reports.
    #: Files of a package's libraries by module and path; in an environment, of torch and all that link to it.
    libraries: Mapping[str, Mapping[str, Path]]
    #: Build targets from metadata, by module; also for extensions without a library.
    targets: dict[str, BuildTarget] = field(default_factory=dict)
    #: An environment's modules that link to torch and that :data:`KERNELS` does not list: ``torchvision``.
    users: frozenset[str] = frozenset()
    torch: InstalledTorch | None = None  #: An environment's torch.
    python: str | None = None  #: An environment's Python, ``3.12``.
    machine: str = ""  #: Processor of an environment's Python: ``x86_64``.
    damaged: tuple[Damage, ...] = ()
    notes: tuple[str, ...] = ()  #: Remarks on the whole environment.


def read_dist_info(folder: Path, module: str) -> BuildTarget:
    """Return the build target in a ``.dist-info`` folder next to a module.

    conda installs no WHEEL, and few modules have a version.py.
    """
    version = folder.parent / module / "version.py"
    return read_wheel_metadata(
        _read_or_empty(folder / "METADATA"), _read_or_empty(folder / "WHEEL"), _read_or_empty(version)
    )


def _read_or_empty(path: Path) -> str:
    if not path.is_file():
        return ""
    return read_text(path, errors="replace")


def name_module(package: str) -> str:
    """Return the module that a distribution or conda package installs; its own name if it is no known extension."""
    word = package.lower().replace("-", "_")
    for module in KERNELS:
        if word in (module, f"py{module}"):  # pytorch_scatter
            return module
    return word


def sort_by_module(root: Path, files: Iterable[Path]) -> defaultdict[str, dict[str, Path]]:
    """Return files below ``root`` by module and path."""
    libraries: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for file in sorted(files):
        path = file.relative_to(root).as_posix()
        libraries[_find_module(path)][path] = file
    return libraries


def _find_module(path: str) -> str:
    """Return the module that a library belongs to, by its path in a package, a wheel or an environment."""
    folder = path.rpartition("/")[0]
    if folder in ("", "lib") and TORCH_LIBRARY.fullmatch(library_name(path)):
        return TORCH
    match = _SITE.match(path)
    if match is None:
        return path.partition("/")[0]
    if match[1] == FUNCTORCH:
        return TORCH
    return match[1]
