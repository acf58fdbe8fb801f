"""Opens conda packages, wheels and environments for verification, without running or importing anything."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from cuda_code.elf_file import NotElf, opened
from cuda_code.kernels import KERNELS
from gpu_tools.site_packages import SitePackages, find_import_folders, find_site_packages
from gpu_tools.unpacked_package import unpack_package
from gpu_tools.verify.build_target import BuildTarget, read_conda_index, read_wheel_metadata
from gpu_tools.verify.installed_torch import InstalledTorch, library_name, parse_torch
from groundwork import wheel_file
from groundwork.archives import explain_damage
from groundwork.errors import UsageError
from groundwork.files import read_text

_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages/([^/.]+)")
_TORCH_LIBRARY = re.compile(r"lib(?:torch|c10|caffe2|shm)\w*\.so")
_TORCHS = re.compile(r"lib(?:torch|c10)\w*\.so")
#: Folders of site-packages that can be large and never link to torch.
_SKIPPED = ("nvidia", "triton")
_SKIPPED_ENDS = (".dist-info", ".libs", ".egg-info", "__pycache__")


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
    #: Unreadable metadata: path, module, reason.
    damaged: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()  #: Remarks on the whole environment.


@contextmanager
def open_subject(path: Path) -> Iterator[Subject]:
    """Open a package, a wheel or an environment; packages are unpacked to a temporary folder.

    Raises UsageError: ``path`` does not exist or is something else.
    Raises IntegrityError: The package or wheel is damaged.
    """
    if path.is_dir():
        yield _environment(path)
        return
    with unpack_package(path) as (folder, kind):
        word = path.name.partition("-")[0] if kind == "wheel" else path.name.rsplit("-", 2)[0]
        module = _module_named(word)
        with explain_damage(path):
            if kind == "wheel":
                target = _dist_info(wheel_file.metadata(folder), module)
            else:
                target = read_conda_index(json.loads((folder / "info/index.json").read_text("utf-8")))
        files = [file for file in folder.rglob("*.so*") if file.is_file() and not file.is_symlink()]
        libraries = _sort_by_module(folder, files)
        modules = libraries.keys() | ({module} & KERNELS.keys())
        yield Subject(name=path.name, libraries=libraries, targets=dict.fromkeys(modules, target))


def _dist_info(folder: Path, module: str) -> BuildTarget:
    # conda installs no WHEEL, and few modules have a version.py
    paths = (folder / "METADATA", folder / "WHEEL", folder.parent / module / "version.py")
    texts = [read_text(path, errors="replace") if path.is_file() else "" for path in paths]
    return read_wheel_metadata(*texts)


def find_python(prefix: Path) -> SitePackages:
    """Return an environment's site-packages; if there are several, the first one with torch.

    Raises UsageError: The folder has no Python.
    """
    sites = find_site_packages(prefix)
    sites = [site for site in sites if (site.folder / "torch").is_dir()] or sites
    if not sites:
        raise UsageError(
            f"{prefix}: not an environment with Python", "pass the folder of a conda environment or a venv"
        )
    return sites[0]


def _environment(prefix: Path) -> Subject:
    python = find_python(prefix)
    site = python.folder
    damaged: list[tuple[str, str, str]] = []

    @contextmanager
    def noting_damage(path: Path, module: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            name = path.relative_to(prefix).as_posix() if path.is_relative_to(prefix) else str(path)
            damaged.append((name, module, f"cannot be read: {error}"))

    users = list(_find_torch_users(site, {"torch", "functorch", *KERNELS}))
    modules = dict.fromkeys(["torch", *KERNELS, *(module for module, _ in users)])
    elsewhere = find_import_folders(site)
    paths = [path for module in ("torch", *KERNELS) for path in (site / module).rglob("*.so*")]
    paths += [path for _, path in users]
    paths += [path for path in prefix.glob("lib/*.so*") if _TORCH_LIBRARY.fullmatch(library_name(path.name))]
    # conda packages have links to lib/ in torch/lib; uv can make every file a link into its cache
    ordered = sorted(filter(Path.is_file, paths), key=Path.is_symlink, reverse=True)
    libraries = _sort_by_module(prefix, {path.resolve(): path for path in ordered}.values())
    for module in KERNELS:
        for file in sorted(path for folder in elsewhere for path in (folder / module).rglob("*.so*")):
            if file.is_file():
                path = file.relative_to(prefix).as_posix() if file.is_relative_to(prefix) else str(file)
                libraries[module][path] = file
    targets: dict[str, BuildTarget] = {}
    for information in sorted(site.glob("*.dist-info")):
        module = _module_named(information.name.partition("-")[0])
        is_here = any(
            (folder / module).is_dir() or (folder / f"{module}.py").is_file() for folder in (site, *elsewhere)
        )
        if module in modules and is_here and (information / "METADATA").is_file():
            with noting_damage(information / "METADATA", module):
                targets[module] = _dist_info(information, module)
        elif module in modules and not is_here:
            reason = "its files are not found: deleted, or installed in editable mode"
            damaged.append((information.relative_to(prefix).as_posix(), module, reason))
    for record in sorted((prefix / "conda-meta").glob("*.json")):
        module = _module_named(record.name.rpartition("-")[0].rpartition("-")[0])
        if module in KERNELS and (site / module).is_dir():
            with noting_damage(record, module):
                targets[module] = read_conda_index(json.loads(read_text(record)))
    torch = None
    # as Python looks for it: in site-packages, then in the folders of editable installations
    imports = [folder for folder in (site, *elsewhere) if (folder / "torch" / "version.py").is_file()]
    for folder in imports[:1]:
        version = folder / "torch" / "version.py"
        with noting_damage(version, "torch"):
            torch = parse_torch(version.parent, _prefix_of(folder, prefix), read_text(version))
            cuda = None if torch.other else torch.cuda or "cpu"
            target = targets.get("torch", BuildTarget(source=""))
            targets["torch"] = replace(target, torch=torch.version, cuda=cuda)
    return Subject(
        name=str(prefix),
        libraries=libraries,
        targets=targets,
        users=frozenset(modules) - {"torch", *KERNELS},
        torch=torch,
        python=python.python,
        machine=_machine(prefix),
        damaged=tuple(damaged),
        notes=tuple(_notes(prefix, torch, site)),
    )


def _find_torch_users(site: Path, known: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield module and library of each library in ``site`` that links to torch's, except of the ``known`` modules.

    Links are not followed into other folders; unreadable libraries are skipped.
    """
    for top in sorted(site.iterdir()):
        module = top.name.partition(".")[0]
        if module in known or module in _SKIPPED or top.name.endswith(_SKIPPED_ENDS):
            continue
        for path in sorted(top.rglob("*.so*")) if top.is_dir() else [top] if ".so" in top.suffixes else []:
            with suppress(NotElf, OSError), opened(path) as library:
                if any(map(_TORCHS.match, library.needed())):
                    yield module, path


def _machine(prefix: Path) -> str:
    with suppress(OSError, ValueError), opened(prefix / "bin" / "python") as program:
        return program.machine
    return ""


def _prefix_of(folder: Path, prefix: Path) -> Path:
    """Return the environment of an import folder: a .pth file may name another environment's site-packages."""
    others = (
        [site.folder.resolve() for site in find_site_packages(folder.parents[2])]
        if len(folder.parts) > 3
        else []
    )
    return folder.parents[2] if folder.resolve() in others else prefix


def _notes(prefix: Path, torch: InstalledTorch | None, site: Path) -> Iterator[str]:
    settings = prefix / "pyvenv.cfg"
    text = settings.read_text(errors="replace") if settings.is_file() else ""
    if torch is None and re.search(r"(?im)^include-system-site-packages\s*=\s*true", text):
        yield "this venv has no torch of its own: pass the environment whose torch it uses with --beside"
    if torch and torch.package.parent != site:
        yield f"torch is imported from {torch.package.parent}"
    if torch and (second := torch.second):
        yield (
            f"two PyTorches: Python loads {torch.version} from {_shown(torch.package, prefix)}/lib, but "
            f"{_shown(second, prefix)} is from another one: uninstall one of them"
        )


def _shown(path: Path, prefix: Path) -> Path:
    return path.relative_to(prefix) if path.is_relative_to(prefix) else path


def _module_named(name: str) -> str:
    """Return the module that a distribution or conda package installs; its own name if it is no known extension."""
    word = name.lower().replace("-", "_")
    return next((module for module in KERNELS if word in (module, f"py{module}")), word)  # pytorch_scatter


def _sort_by_module(root: Path, files: Iterable[Path]) -> defaultdict[str, dict[str, Path]]:
    """Return files below ``root`` by module and path."""
    libraries: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for file in sorted(files):
        path = file.relative_to(root).as_posix()
        libraries[find_module(path)][path] = file
    return libraries


def find_module(path: str) -> str:
    """Return the module that a library belongs to, by its path in a package, a wheel or an environment."""
    if path.rpartition("/")[0] in ("", "lib") and _TORCH_LIBRARY.fullmatch(library_name(path)):
        return "torch"
    if match := _SITE.match(path):
        return "torch" if match[1] == "functorch" else match[1]  # torch up to 2.6 has a library in functorch/
    return path.partition("/")[0]
