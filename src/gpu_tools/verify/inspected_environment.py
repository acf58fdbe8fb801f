"""Reads an environment for verification, without running or importing anything."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cuda_code.elf_file import NotElf, opened
from cuda_code.kernels import KERNELS
from gpu_tools.site_packages import SitePackages, find_import_folders, find_site_packages
from gpu_tools.verify.build_target import BuildTarget, read_conda_index
from gpu_tools.verify.installed_torch import InstalledTorch, library_name, parse_torch
from gpu_tools.verify.subject import (
    FUNCTORCH,
    TORCH,
    TORCH_LIBRARY,
    Damage,
    Subject,
    name_module,
    read_dist_info,
    sort_by_module,
)
from groundwork.errors import UsageError
from groundwork.files import below, read_text

_TORCHS = re.compile(r"lib(?:torch|c10)\w*\.so")
_USES_SYSTEM = re.compile(r"(?im)^include-system-site-packages\s*=\s*true")
#: Folders of site-packages that can be large and never link to torch.
_SKIPPED = ("nvidia", "triton")
_SKIPPED_ENDS = (".dist-info", ".libs", ".egg-info", "__pycache__")
_LIBRARIES = "*.so*"


def find_python(prefix: Path) -> SitePackages:
    """Return an environment's site-packages; if there are several, the first one with torch.

    Raises UsageError: The folder has no Python.
    """
    sites = find_site_packages(prefix)
    for site in sites:
        if (site.folder / TORCH).is_dir():
            return site
    if not sites:
        raise UsageError(
            f"{prefix}: not an environment with Python", "pass the folder of a conda environment or a venv"
        )
    return sites[0]


def read_environment(prefix: Path) -> Subject:
    """Read an environment's libraries and metadata.

    Raises UsageError: The folder has no Python.
    """
    python = find_python(prefix)
    environment = _Environment(prefix, python.folder)
    targets = environment.read_targets()
    torch = environment.read_torch()
    if torch:
        targets[TORCH] = _complete_target(targets.get(TORCH, BuildTarget(source="")), torch)
    return Subject(
        name=str(prefix),
        libraries=environment.find_libraries(),
        targets=targets,
        users=environment.users,
        torch=torch,
        python=python.python,
        machine=_read_machine(prefix),
        damaged=tuple(environment.damaged),
        notes=tuple(_find_notes(prefix, torch, python.folder)),
    )


class _Environment:
    """Reads the libraries and metadata in a site-packages folder; collects what is damaged."""

    def __init__(self, prefix: Path, site: Path) -> None:
        self._prefix = prefix
        self._site = site
        self._elsewhere = find_import_folders(site)
        self._user_libraries = list(_find_torch_users(site, {TORCH, FUNCTORCH, *KERNELS}))
        #: Modules that link to torch and that KERNELS does not list.
        self.users = frozenset(library.module for library in self._user_libraries)
        self._modules = {TORCH, *KERNELS, *self.users}
        self.damaged: list[Damage] = []

    def find_libraries(self) -> Mapping[str, Mapping[str, Path]]:
        """Return the libraries of torch and of all that link to it, by module and path."""
        paths: list[Path] = []
        for module in (TORCH, *KERNELS):
            paths += self._files_of(module, self._site / module)
        paths += [library.path for library in self._user_libraries]
        for path in self._prefix.glob(f"lib/{_LIBRARIES}"):
            if TORCH_LIBRARY.fullmatch(library_name(path.name)):
                paths.append(path)
        # conda packages have links to lib/ in torch/lib; uv can make every file a link into its cache
        links_first = sorted(filter(Path.is_file, paths), key=Path.is_symlink, reverse=True)
        by_target = {path.resolve(): path for path in links_first}
        libraries = sort_by_module(self._prefix, by_target.values())
        for module in KERNELS:
            for file in self._find_elsewhere(module):
                libraries[module][_shown(file, self._prefix)] = file
        return libraries

    def _find_elsewhere(self, module: str) -> list[Path]:
        """Return a module's libraries in the folders of editable installations."""
        found: list[Path] = []
        for folder in self._elsewhere:
            found += filter(Path.is_file, self._files_of(module, folder / module))
        return sorted(found)

    def _files_of(self, module: str, folder: Path) -> list[Path]:
        """Return the files of a module's folder with a library's name; note a folder that cannot be read."""
        found: list[Path] = []
        with self._noting_damage(folder, module):
            found += [path for path in below(folder) if ".so" in path.name]
        return found

    def read_targets(self) -> dict[str, BuildTarget]:
        """Return the build targets in the metadata of wheels, then of conda packages, by module."""
        targets: dict[str, BuildTarget] = {}
        for information in sorted(self._site.glob("*.dist-info")):
            module = name_module(information.name.partition("-")[0])
            metadata = information / "METADATA"
            if module not in self._modules:
                continue
            if not self._has_files(module):
                reason = "its files are not found: deleted, or installed in editable mode"
                self._add_damage(information, module, reason)
            elif metadata.is_file():
                with self._noting_damage(metadata, module):
                    targets[module] = read_dist_info(information, module)
        for record in sorted((self._prefix / "conda-meta").glob("*.json")):
            module = name_module(record.name.rsplit("-", 2)[0])
            if module in KERNELS and (self._site / module).is_dir():
                with self._noting_damage(record, module):
                    targets[module] = read_conda_index(json.loads(read_text(record)))
        return targets

    def _has_files(self, module: str) -> bool:
        for folder in (self._site, *self._elsewhere):
            if (folder / module).is_dir() or (folder / f"{module}.py").is_file():
                return True
        return False

    def read_torch(self) -> InstalledTorch | None:
        """Return the torch that Python imports: from site-packages, or from the folder of an editable installation."""
        for folder in (self._site, *self._elsewhere):
            version = folder / TORCH / "version.py"
            if version.is_file():
                with self._noting_damage(version, TORCH):
                    prefix = _find_prefix(folder, self._prefix)
                    return parse_torch(version.parent, prefix, read_text(version))
                return None
        return None

    @contextmanager
    def _noting_damage(self, path: Path, module: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            self._add_damage(path, module, f"cannot be read: {error}")

    def _add_damage(self, path: Path, module: str, reason: str) -> None:
        self.damaged.append(Damage(path=_shown(path, self._prefix), module=module, reason=reason))


@dataclass(frozen=True, kw_only=True)
class _TorchUser:
    """A library that links to torch's."""

    module: str
    path: Path


def _find_torch_users(site: Path, known: Collection[str]) -> Iterator[_TorchUser]:
    """Yield the libraries in ``site`` that link to torch's, except of the ``known`` modules.

    Links are not followed into other folders; unreadable libraries are skipped.
    """
    for top in sorted(site.iterdir()):
        module = top.name.partition(".")[0]
        if module in known or module in _SKIPPED or top.name.endswith(_SKIPPED_ENDS):
            continue
        libraries: list[Path] = []
        if top.is_dir():
            libraries = sorted(top.rglob(_LIBRARIES))
        elif ".so" in top.suffixes:
            libraries = [top]
        for path in libraries:
            with suppress(NotElf, OSError), opened(path) as library:
                if any(map(_TORCHS.match, library.needed())):
                    yield _TorchUser(module=module, path=path)


def _complete_target(target: BuildTarget, torch: InstalledTorch) -> BuildTarget:
    """Return torch's build target, with the version and CUDA from its ``version.py``."""
    if torch.other:
        return replace(target, torch=torch.version, cuda=None)
    return replace(target, torch=torch.version, cuda=torch.cuda or "cpu")


def _read_machine(prefix: Path) -> str:
    with suppress(OSError, ValueError), opened(prefix / "bin" / "python") as program:
        return program.machine
    return ""


def _find_prefix(folder: Path, prefix: Path) -> Path:
    """Return the environment of an import folder: a .pth file may name another environment's site-packages."""
    if len(folder.parts) <= 3:
        return prefix
    other = folder.parents[2]
    for site in find_site_packages(other):
        if site.folder.resolve() == folder.resolve():
            return other
    return prefix


def _find_notes(prefix: Path, torch: InstalledTorch | None, site: Path) -> Iterator[str]:
    if torch is None:
        settings = prefix / "pyvenv.cfg"
        if settings.is_file() and _USES_SYSTEM.search(settings.read_text(errors="replace")):
            yield "this venv has no torch of its own: pass the environment whose torch it uses with --beside"
        return
    if torch.package.parent != site:
        yield f"torch is imported from {torch.package.parent}"
    second = torch.second
    if second:
        yield (
            f"two PyTorches: Python loads {torch.version} from {_shown(torch.package, prefix)}/lib, but "
            f"{_shown(second, prefix)} is from another one: uninstall one of them"
        )


def _shown(path: Path, prefix: Path) -> str:
    """Return a path as reports show it: relative to the environment if it is inside."""
    if path.is_relative_to(prefix):
        return path.relative_to(prefix).as_posix()
    return str(path)
