"""An unpacked wheel made from installed conda packages: one copy of every file, and libraries that find each other.

conda's PyTorch lies in two packages, of which ``pytorch`` has links to libtorch's files; wheels cannot contain links.
Debian's builds have versions in the names of libtorch's libraries; in a wheel they are called as upstream's are, so
that extensions and CMake find them by one name.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from conda_wheels import tools
from cuda_code.elf_file import NotElf, opened
from groundwork import wheel_file
from groundwork.errors import IntegrityError

#: What pip and conda note about an installation.
_NOTES = frozenset({"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"})
_SITE = re.compile(r"(?:lib/python3\.\d+t?/)?site-packages/")
_TAG = re.compile(r"^Tag: (\w+)-(\w+)-(\w+)$", re.MULTILINE)
_VERSIONED = re.compile(r"\b(lib(?:torch|c10|caffe2|shm)\w*\.so)\.\d[\d.]*\d")
#: Where libtorch's libraries are in a wheel.
LIBRARIES = Path("torch", "lib")
#: One copy of GCC's OpenMP per process, whose name extensions' libraries know too: as in upstream's wheels.
OPENMP = "libgomp.so.1"


def lay_out(prefix: Path, paths: Iterable[str], tree: Path) -> None:
    """Copy the Python files among an environment's or unpacked package's ``paths`` into a tree; links become files."""
    for path in sorted(paths):
        if inside := _SITE.match(path):
            _copy(prefix / path, tree / path[inside.end() :])
    here = str(prefix).encode()
    for file in _files(tree):
        data = b"" if _is_elf(file) else file.read_bytes()
        settled = data.replace(here, b"$PREFIX")  # flags of the compiler in a header
        if file.suffix == ".cmake":
            settled = _VERSIONED.sub(r"\1", settled.decode()).encode()
        if settled != data:
            file.write_bytes(settled)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():  # a link to a folder of headers
        for child in sorted(source.iterdir()):
            _copy(child, target / child.name)
        return
    noted = source.name in _NOTES and source.parent.name.endswith(".dist-info")
    target = target.with_name(_VERSIONED.sub(r"\1", target.name))
    if noted or source.suffix == ".pyc" or target.exists():  # of libc10.so and libc10.so.2.6 one is a link
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if _is_elf(target) or os.access(source, os.X_OK) else 0o644)


def _files(tree: Path) -> list[Path]:
    return [path for path in sorted(tree.rglob("*")) if path.is_file()]


def _is_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def libraries(tree: Path) -> Iterator[Path]:
    """Yield the libraries and programs of a tree."""
    yield from (path for path in _files(tree) if _is_elf(path))


def needed(tree: Path) -> set[str]:
    """Return the sonames that the libraries of a tree need."""
    sonames: set[str] = set()
    for path in libraries(tree):
        try:
            with opened(path) as elf:
                sonames.update(elf.needed())
        except NotElf as error:
            raise IntegrityError(f"{path.relative_to(tree)}: {error}", "build the package again") from error
    return sonames


def link(tree: Path, beside: Sequence[str] = ()) -> None:
    """Make libraries refer to libtorch's by their unversioned names, and set the RPATHs that find them in the wheel.

    Extensions get no RPATH: PyTorch, which is imported first, has loaded the libraries.
    PyTorch's libraries search folders of other wheels (``beside``, below site-packages) after their own.
    """
    for path in libraries(tree):
        with opened(path) as elf:
            names, soname, former_rpath = elf.needed(), elf.soname(), elf.rpath()
        arguments: list[str] = []
        for name in names:
            if (plain := _VERSIONED.sub(r"\1", name)) != name:
                arguments += ["--replace-needed", name, plain]
        if soname and (plain := _VERSIONED.sub(r"\1", soname)) != soname:
            arguments += ["--set-soname", plain]
        own = [LIBRARIES, *map(Path, beside)] if (tree / LIBRARIES).is_dir() else []
        rpath = [_origin(path, tree / folder) for folder in own]
        if rpath != [*former_rpath]:
            arguments += ["--force-rpath", "--set-rpath", ":".join(rpath)] if rpath else ["--remove-rpath"]
        if arguments:
            tools.patchelf(path, arguments)


def _origin(path: Path, folder: Path) -> str:
    relative = os.path.relpath(folder, path.parent)
    return "$ORIGIN" if relative == "." else f"$ORIGIN/{relative}"


def set_vendored_rpaths(tree: Path, beside: Sequence[str] = ()) -> None:
    """Make vendored libraries find PyTorch's own folder (OpenMP) and other wheels (MAGMA: CUDA)."""
    pytorch_libraries = {path.name for path in (tree / LIBRARIES).glob("*")}
    for path in tree.glob("*.libs/*"):
        with opened(path) as elf:
            needs_more = bool(beside) or not pytorch_libraries.isdisjoint(elf.needed())
        if needs_more:
            folders = [
                "$ORIGIN",
                *(_origin(path, tree / folder) for folder in (LIBRARIES, *map(Path, beside))),
            ]
            tools.patchelf(path, ["--force-rpath", "--set-rpath", ":".join(folders)])


def tag(tree: Path, subdir: str) -> str:
    """Tag a tree for the Python that its libraries are for and any Linux; auditwheel replaces the latter.

    The tree has its final version. Returns the wheel's file name; ``subdir`` is conda's platform, ``linux-64``.
    """
    folder = wheel_file.metadata(tree)
    (python, abi, _) = _TAG.findall((folder / "WHEEL").read_text())[0]
    if abi == "abi3":
        for path in libraries(tree):
            with opened(path) as elf:
                used = sorted(name for name in elf.undefined() if name.startswith(("Py", "_Py")))
            if used and ".abi3." not in path.name:
                raise IntegrityError(
                    f"{path.name} is tagged abi3, but needs {used[0]}, which is not in the stable ABI",
                    "build the package again",
                )
    machine = {"64": "x86_64"}.get(subdir.partition("-")[2], subdir.partition("-")[2])
    tags = f"{python}-{abi}-linux_{machine}"
    (folder / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nGenerator: megabuild\nRoot-Is-Purelib: false\nTag: {tags}\n"
    )
    return f"{folder.name.removesuffix('.dist-info')}-{tags}.whl"


def add_licences(tree: Path, texts: Mapping[str, Path]) -> None:
    """Add licence texts, by their paths below ``licenses``, to the metadata, except those it already has."""
    folder = wheel_file.metadata(tree)
    contained = {path.read_bytes() for path in _files(folder)}
    for name, source in sorted(texts.items()):
        data = source.read_bytes()
        if data not in contained:
            target = folder / "licenses" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            contained.add(data)
