"""Lay out an unpacked wheel from installed conda packages, so that its libraries find each other.

conda splits PyTorch into two packages; ``pytorch`` has links to libtorch's files. Wheels cannot contain links: every
file is copied once. Debian's builds have versions in the names of libtorch's libraries; a wheel uses upstream's names,
by which extensions and CMake find the libraries.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from conda_wheels import tools
from cuda_code.elf_file import ElfFile, NotElf, opened
from groundwork import files, wheel_file
from groundwork.damage import reading
from groundwork.errors import IntegrityError

#: Files that pip and conda write at installation, which are not part of a wheel.
_NOTES = frozenset({"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"})
_SITE = re.compile(r"(?:lib/python3\.\d+t?/)?site-packages/")
_TAG = re.compile(r"^Tag: (\w+)-(\w+)-(\w+)$", re.MULTILINE)
_VERSIONED = re.compile(r"\b(lib(?:torch|c10|caffe2|shm)\w*\.so)\.\d[\d.]*\d")
#: The folder of libtorch's libraries in a wheel.
LIBRARIES = Path("torch", "lib")
#: In an environment's ``include``: extensions include pybind11, PyTorch's headers fmt, and torch.compile sleef.h.
#: Upstream's wheels have all three.
_DEPENDENCY_HEADERS = ("pybind11", "fmt", "sleef.h")
#: As in upstream's wheels, PyTorch's GCC OpenMP keeps this name: extensions use the same copy in a process.
OPENMP = "libgomp.so.1"


def lay_out(prefix: Path, paths: Iterable[str], tree: Path) -> None:
    """Copy those ``paths`` of an environment or unpacked package that are in site-packages; links become files."""
    for path in sorted(paths):
        if inside := _SITE.match(path):
            _copy(prefix / path, tree / path[inside.end() :])
    location = str(prefix).encode()
    for file in _files(tree):
        if _is_elf(file):
            continue
        data = file.read_bytes()
        neutral = data.replace(location, b"$PREFIX")  # a header contains the compiler's flags
        if file.suffix == ".cmake":
            neutral = _unversioned(neutral.decode()).encode()
        if neutral != data:
            file.write_bytes(neutral)


def _unversioned(text: str) -> str:
    """Return a text with upstream's names of libtorch's libraries."""
    return _VERSIONED.sub(r"\1", text)


def add_headers(environment: Path, tree: Path) -> None:
    """Copy the headers of PyTorch's dependencies that users' code includes from an environment into a tree."""
    for name in _DEPENDENCY_HEADERS:
        if (source := environment / "include" / name).exists():
            _copy(source, tree / "torch" / "include" / name)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():  # a link to a folder of headers
        for child in sorted(source.iterdir()):
            _copy(child, target / child.name)
        return
    is_note = source.name in _NOTES and source.parent.name.endswith(".dist-info")
    target = target.with_name(_unversioned(target.name))
    # libc10.so is a link to libc10.so.2.6: copy one
    if is_note or source.suffix == ".pyc" or target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    is_program = _is_elf(target) or os.access(source, os.X_OK)
    target.chmod(wheel_file.file_mode(executable=is_program))


def _files(tree: Path) -> list[Path]:
    return [path for path in files.below(tree) if path.is_file()]


def _is_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def libraries(tree: Path) -> list[Path]:
    """Return the libraries and programs of a tree."""
    return [path for path in _files(tree) if _is_elf(path)]


def needed(tree: Path) -> set[str]:
    """Return the sonames that the libraries of a tree need."""
    sonames: set[str] = set()
    for path in libraries(tree):
        with _library(path, tree) as elf:
            sonames.update(elf.needed())
    return sonames


@contextmanager
def _library(path: Path, tree: Path) -> Iterator[ElfFile]:
    """Open a library of a tree. Raises IntegrityError: It, or a table that is read, is damaged."""
    try:
        with opened(path) as elf:
            yield elf
    except NotElf as error:
        raise IntegrityError(f"{path.relative_to(tree)}: {error}", "build the package again") from error


def link(tree: Path, beside: Sequence[str] = ()) -> None:
    """Make libraries require libtorch's by unversioned names, and set the RPATHs that find them in the wheel.

    PyTorch's libraries search the folders of other wheels (``beside``, below site-packages) after their own. Extensions
    get no RPATH: PyTorch, which is imported first, has loaded the libraries.
    """
    searched: list[Path] = []
    if (tree / LIBRARIES).is_dir():
        searched = [LIBRARIES, *map(Path, beside)]
    for path in libraries(tree):
        rpath = [_origin(path, tree / folder) for folder in searched]
        with _library(path, tree) as elf:
            arguments = [*_renaming(elf), *_searching(elf, rpath)]
        if arguments:
            tools.patchelf(path, arguments)


def _renaming(elf: ElfFile) -> list[str]:
    """Return patchelf's options for unversioned names of libtorch's libraries."""
    arguments: list[str] = []
    for name in elf.needed():
        plain = _unversioned(name)
        if plain != name:
            arguments += ["--replace-needed", name, plain]
    soname = elf.soname() or ""
    plain = _unversioned(soname)
    if plain != soname:
        arguments += ["--set-soname", plain]
    return arguments


def _searching(elf: ElfFile, rpath: Sequence[str]) -> list[str]:
    """Return patchelf's options for another RPATH than the file has."""
    if rpath == list(elf.rpath()):
        return []
    if not rpath:
        return ["--remove-rpath"]
    return ["--force-rpath", "--set-rpath", ":".join(rpath)]


def _origin(path: Path, folder: Path) -> str:
    relative = os.path.relpath(folder, path.parent)
    if relative == ".":
        return "$ORIGIN"
    return f"$ORIGIN/{relative}"


def set_vendored_rpaths(tree: Path, beside: Sequence[str] = ()) -> None:
    """Make vendored libraries search PyTorch's own folder (for OpenMP) and other wheels (MAGMA needs CUDA)."""
    for path in tree.glob("*.libs/*"):
        others = [_origin(path, tree / folder) for folder in (LIBRARIES, *map(Path, beside))]
        tools.patchelf(path, ["--force-rpath", "--set-rpath", ":".join(["$ORIGIN", *others])])


def tag(tree: Path, subdir: str) -> str:
    """Tag a tree for its libraries' Python and any Linux, and return the wheel's file name.

    auditwheel replaces the Linux tag later. ``subdir`` is conda's platform (``linux-64``).

    Raises IntegrityError: The tree is tagged abi3, but a library uses symbols outside the stable ABI.
    """
    folder = wheel_file.metadata(tree)
    with reading(folder / "WHEEL"):
        (python, abi, _) = _TAG.findall((folder / "WHEEL").read_text(encoding="utf-8"))[0]
    if abi == "abi3":
        _check_stable_abi(tree)
    machine = subdir.partition("-")[2]
    if machine == "64":
        machine = "x86_64"
    tags = f"{python}-{abi}-linux_{machine}"
    (folder / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: megabuild\nRoot-Is-Purelib: false\nTag: {tags}\n"
    )
    return f"{folder.name.removesuffix('.dist-info')}-{tags}.whl"


def _check_stable_abi(tree: Path) -> None:
    """Raise IntegrityError if a library uses symbols outside the stable ABI."""
    for path in libraries(tree):
        with _library(path, tree) as elf:
            used = sorted(name for name in elf.undefined() if name.startswith(("Py", "_Py")))
        if used and ".abi3." not in path.name:
            raise IntegrityError(
                f"{path.name} needs {used[0]}, which is not in the stable ABI of its abi3 tag",
                "build the package again",
            )


def add_licences(tree: Path, texts: Mapping[str, Path]) -> None:
    """Add licence texts to the metadata, by their paths below ``licenses``, except texts that it has already."""
    folder = wheel_file.metadata(tree)
    contained = {path.read_bytes() for path in _files(folder)}
    for name, source in sorted(texts.items()):
        data = source.read_bytes()
        if data not in contained:
            target = folder / "licenses" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            contained.add(data)
