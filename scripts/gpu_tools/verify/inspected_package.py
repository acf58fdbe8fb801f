"""What can be looked into: conda packages, wheels, and environments. Nothing of them is run or imported."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from cuda_code.elf_file import opened
from cuda_code.kernels import KERNELS
from gpu_tools.site_packages import SitePackages, find_site_packages
from gpu_tools.verify.build_target import BuildTarget, read_conda_index, read_wheel_metadata
from gpu_tools.verify.installed_torch import TorchBeside, library_name, parse_torch
from groundwork.errors import IntegrityError, UsageError
from groundwork.files import unpack
from groundwork.text import counted

_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages/([^/]+)/")
_TORCH_LIBRARY = re.compile(r"lib(?:torch|c10|caffe2|shm)\w*\.so")
_Read = TypeVar("_Read")
_KINDS = ".conda, .tar.bz2, .whl, or the folder of an environment"


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library of a subject: where it lies now, its path in the subject, and the module it belongs to."""

    file: Path
    path: str
    module: str


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Something to look into."""

    name: str  #: For people.
    #: Libraries of torch and of its extensions; in a package, all of its libraries.
    libraries: tuple[Library, ...]
    #: What metadata say, per module; of an extension also if it has no library.
    targets: dict[str, BuildTarget] = field(default_factory=dict)
    torch: TorchBeside | None = None  #: The torch in it, for an environment.
    python: str | None = None  #: An environment's Python, ``3.12``.
    machine: str = ""  #: The processor that an environment's Python is for: ``x86_64``.
    #: Metadata that cannot be read: path, module, what is wrong.
    damaged: tuple[tuple[str, str, str], ...] = ()
    notes: tuple[str, ...] = ()  #: Remarks on an environment as a whole.


@contextmanager
def open_subject(path: Path) -> Iterator[Subject]:
    """Open a package, a wheel or an environment; what is unpacked is deleted at the end.

    Raises UsageError: There is nothing at ``path``, or it is something else.
    Raises IntegrityError: A package or wheel is damaged.
    """
    if path.is_dir():
        yield _environment(path)
        return
    if not path.is_file():
        raise UsageError(f"there is no {path}", f"give a file or folder: {_KINDS}")
    if not path.name.endswith((".conda", ".tar.bz2", ".whl")):
        raise UsageError(f"{path.name} cannot be looked into", f"give {_KINDS}")
    with tempfile.TemporaryDirectory(prefix="megabuild-verify-") as folder:
        unpacked = Path(folder)
        try:
            targets = _wheel(path, unpacked) if path.suffix == ".whl" else _package(path, unpacked)
            files = [file for file in unpacked.rglob("*.so*") if file.is_file() and not file.is_symlink()]
        except IntegrityError:
            raise
        except Exception as error:  # rattler's errors share no base class
            words = f"{type(error).__name__} {error}".strip()
            raise IntegrityError(f"{path} cannot be read: {words}", "get or build it again") from error
        libraries = _named(unpacked, files)
        modules = {library.module for library in libraries} | ({_own_module(path)} & KERNELS.keys())
        yield Subject(name=path.name, libraries=libraries, targets=dict.fromkeys(modules, targets))


def _own_module(path: Path) -> str:
    """Return the module that a package or wheel is for, by its file's name."""
    wheel = path.suffix == ".whl"
    return _module_named(path.name.partition("-")[0] if wheel else path.name.rsplit("-", 2)[0])


def _package(path: Path, folder: Path) -> BuildTarget:
    if path.suffix == ".conda":
        from rattler.package_streaming import extract

        extract(path, folder)
    else:
        unpack(path, folder)
    return read_conda_index(json.loads((folder / "info" / "index.json").read_text(encoding="utf-8")))


def _wheel(path: Path, folder: Path) -> BuildTarget:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(
            folder, [name for name in archive.namelist() if ".so" in name or ".dist-info/" in name]
        )
    information = next(folder.glob("*.dist-info/METADATA"), None)
    if information is None:
        raise IntegrityError(f"{path} has no .dist-info folder with METADATA", "get or build it again")
    return _dist_info(information.parent)


def _dist_info(folder: Path) -> BuildTarget:
    tags = folder / "WHEEL"  # absent where conda installed it
    texts = [
        path.read_text(errors="replace") if path.is_file() else "" for path in (folder / "METADATA", tags)
    ]
    return read_wheel_metadata(*texts)


def find_python(prefix: Path) -> SitePackages:
    """Return an environment's Python: the one that has torch, if there are several.

    Raises UsageError: The folder has no Python, or several that could be meant.
    """
    sites = find_site_packages(prefix)
    sites = [site for site in sites if (site.folder / "torch").is_dir()] or sites
    sites = [site for site in sites if (prefix / "bin" / f"python{site.python}").exists()] or sites
    if len(sites) != 1:
        raise UsageError(
            f"{prefix} is not an environment: {counted(len(sites), 'Python')} in it",
            "give the folder of a conda environment or a venv",
        )
    return sites[0]


def _environment(prefix: Path) -> Subject:
    python = find_python(prefix)
    site = python.folder
    damaged: list[tuple[str, str, str]] = []

    def checked(path: Path, module: str, read: Callable[[str], _Read]) -> _Read | None:
        try:
            return read(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError, AttributeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            damaged.append((path.relative_to(prefix).as_posix(), module, f"cannot be read: {reason}"))
        return None

    modules = ("torch", *KERNELS)
    files = [path for module in modules for path in (site / module).rglob("*.so*") if path.is_file()]
    shared = (path for path in prefix.glob("lib/*.so*") if not path.is_symlink())
    files += [path for path in shared if _TORCH_LIBRARY.fullmatch(library_name(path.name))]
    targets: dict[str, BuildTarget] = {}
    for information in sorted(site.glob("*.dist-info")):
        module = _module_named(information.name.partition("-")[0])
        # without a folder or a file of its own it is installed from where it is developed
        is_here = (site / module).is_dir() or (site / f"{module}.py").is_file()
        if module in modules and is_here and (information / "METADATA").is_file():
            checked(information / "METADATA", module, str)
            targets[module] = _dist_info(information)
    for record in sorted((prefix / "conda-meta").glob("*.json")):
        module = _module_named(record.name.rpartition("-")[0].rpartition("-")[0])
        if module in KERNELS and (site / module).is_dir():
            conda = checked(record, module, lambda text: read_conda_index(json.loads(text)))
            targets |= {module: conda} if conda else {}
    torch, package = None, site / "torch"
    if (package / "version.py").is_file():
        torch = checked(package / "version.py", "torch", partial(parse_torch, package, prefix))
    return Subject(
        name=str(prefix),
        libraries=_named(prefix, files),
        targets=targets,
        torch=torch,
        python=python.python,
        machine=_machine(prefix),
        damaged=tuple(damaged),
        notes=tuple(_notes(prefix, torch)),
    )


def _machine(prefix: Path) -> str:
    for name in ("python", "python3"):
        with contextlib.suppress(OSError, ValueError), opened(prefix / "bin" / name) as program:
            return program.machine
    return ""


def _notes(prefix: Path, torch: TorchBeside | None) -> Iterator[str]:
    settings = prefix / "pyvenv.cfg"
    text = settings.read_text(errors="replace") if settings.is_file() else ""
    if torch is None and re.search(r"(?im)^include-system-site-packages\s*=\s*true", text):
        yield "this venv has no torch of its own: name the base whose torch it uses, --beside ENVIRONMENT"
    if torch and (second := torch.second):
        yield (
            f"two PyTorches are here: Python loads {torch.version} from {torch.package.relative_to(prefix)}/lib, and "
            f"{second.relative_to(prefix)} is another one: remove one of them"
        )


def _module_named(name: str) -> str:
    """Return the module of a distribution or conda package; of one that is no extension, its own name."""
    word = name.lower().replace("-", "_")
    return next((module for module in KERNELS if word in (module, f"py{module}")), word)  # pytorch_scatter


def _named(folder: Path, files: Sequence[Path]) -> tuple[Library, ...]:
    return tuple(
        Library(file=file, path=(path := file.relative_to(folder).as_posix()), module=find_module(path))
        for file in sorted(files)
    )


def find_module(path: str) -> str:
    """Return the module that a library belongs to, by its path in a package, a wheel or an environment."""
    if path.rpartition("/")[0] in ("", "lib") and _TORCH_LIBRARY.fullmatch(library_name(path)):
        return "torch"
    if match := _SITE.match(path):
        return "torch" if match[1] == "functorch" else match[1]  # up to 2.6 with a library of its own
    return path.partition("/")[0]
