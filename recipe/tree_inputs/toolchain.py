"""The programs that compile and link a tree, and the files that these read without being told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .tree import LINK, Tree

_CUDA = "CUDA"
_SETTING = re.compile(r'^\s*set\((CMAKE_\w+) "?(.*?)"?\)$', re.MULTILINE)
#: Programs that compilers start, and files that they read.
_COMPILER_PARTS = ("cc1", "cc1plus", "as")
_LINKER_PARTS = ("ld", "collect2", "lto1", "lto-wrapper")
_COMPILER_FILES = ("specs", "liblto_plugin.so")
_CUDA_PARTS = ("nvcc", "cicc", "ptxas", "fatbinary", "nvlink", "cudafe++", "bin2c")
#: The program with which nvcc deletes its temporary files.
_DELETES = "rm"
#: Objects and libraries that a compiler links into each program or library.
_LINKED = (
    "crt1.o", "Scrt1.o", "gcrt1.o", "crti.o", "crtn.o", "crtbegin.o", "crtbeginS.o", "crtbeginT.o", "crtend.o",
    "crtendS.o", "crtfastmath.o", "libgcc.a", "libgcc_eh.a", "libgcc_s.so", "libc_nonshared.a", "libc.so",
    "libstdc++.so", "libgomp.so", "libgomp.spec",
)  # fmt: skip
_LINK_TOOLS = ("CMAKE_AR", "CMAKE_RANLIB", "CMAKE_LINKER")
#: The C library and the compiler's runtime: programs run with the machine's own, which objects do not depend on.
_RUNTIME = re.compile(r"lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+)\.so|ld-linux|linux-vdso|linux-gate")
_LIBRARY = re.compile(r"(?:=> |^\s+)(/\S+)")
#: The first bytes of objects, libraries and archives.
_NO_SCRIPT = (b"\x7fELF", b"!<arch>", b"!<thin>")
_FILE_NAME = re.compile(rb"[\w./+-]+\.(?:so[\w.]*|a|o)\b")
_SMALL = 1 << 16  # bytes; a linker script has a few hundred


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """The compilers of a tree.

    `programs`: files by language, and for LINK; a change of one concerns all outputs of the language.
    `include_folders`, `link_folders`: the compilers' own.
    """

    programs: Mapping[str, tuple[str, ...]]
    include_folders: Mapping[str, tuple[str, ...]]
    link_folders: tuple[str, ...]
    linked: tuple[str, ...] = field(default=())  #: names of libraries that every link has


def find_toolchain(tree: Tree) -> Toolchain:
    """Ask CMake's notes and the compilers themselves for the programs of a tree."""
    programs: dict[str, tuple[str, ...]] = {}
    include_folders: dict[str, tuple[str, ...]] = {}
    link_files: list[str] = []
    link_folders: list[str] = []
    linked: list[str] = []
    for language, settings in _languages(tree).items():
        compiler = settings.get(f"CMAKE_{language}_COMPILER", "")
        if not compiler:
            continue
        found = list(_programs(compiler))
        if language == _CUDA:
            found = list(_cuda_programs(compiler, settings.get("CMAKE_CUDA_HOST_COMPILER", "")))
        programs[language] = tuple(dict.fromkeys([*found, *libraries_of(found)]))
        include_folders[language] = _list(settings, f"CMAKE_{language}_IMPLICIT_INCLUDE_DIRECTORIES")
        link_folders += _list(settings, f"CMAKE_{language}_IMPLICIT_LINK_DIRECTORIES")
        linked += _list(settings, f"CMAKE_{language}_IMPLICIT_LINK_LIBRARIES")
        link_files += _link_files(compiler, programs[language], language)
        link_files += [settings.get(name, "") for name in _LINK_TOOLS]
    for path in tuple(link_files):
        link_files += named_by_script(path)
    programs[LINK] = tuple(dict.fromkeys(filter(os.path.isfile, link_files)))
    return Toolchain(
        programs=programs,
        include_folders=include_folders,
        link_folders=tuple(dict.fromkeys(link_folders)),
        linked=tuple(dict.fromkeys(linked)),
    )


def _languages(tree: Tree) -> Mapping[str, Mapping[str, str]]:
    """Return CMake's notes about each compiler, by language."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(Path(tree.build, "CMakeFiles").glob("[0-9]*/CMake*Compiler.cmake")):
        language = path.name.removeprefix("CMake").removesuffix("Compiler.cmake")
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        found[language] = dict(_SETTING.findall(text))
    return found


def _list(settings: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word for word in settings.get(name, "").split(";") if word)


@dataclass(frozen=True)
class _SearchPath:
    """The folders in which a compiler searches the programs that it starts, and the files that it links."""

    programs: Sequence[str]
    libraries: Sequence[str]

    @classmethod
    def of(cls, compiler: str) -> _SearchPath:
        """Ask a compiler; the folders are empty if it does not know the question."""
        found: dict[str, list[str]] = {}
        for line in _output([compiler, "-print-search-dirs"]).splitlines():
            kind, separator, folders = line.partition(": =")
            if separator:
                found[kind] = [folder for folder in folders.split(":") if folder]
        return cls(programs=found.get("programs", []), libraries=found.get("libraries", []))

    def find_programs(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the paths of programs, which may also be in $PATH."""
        for name in names:
            path = _first(name, self.programs) or shutil.which(name)
            if path:
                yield path

    def find_files(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the paths of files."""
        for name in names:
            path = _first(name, self.libraries) or _first(name, self.programs)
            if path:
                yield path


def _first(name: str, folders: Iterable[str]) -> str:
    """Return the path of a file in the first folder that has it; empty if none has."""
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(path):
            return path
    return ""


def _programs(compiler: str) -> Iterator[str]:
    """Yield a compiler, and the programs and files with which it compiles."""
    search = _SearchPath.of(compiler)
    yield compiler
    yield from search.find_programs(_COMPILER_PARTS)
    yield from search.find_files(_COMPILER_FILES)


def _link_files(compiler: str, programs: Sequence[str], language: str) -> Iterator[str]:
    """Yield the programs and files with which a compiler links."""
    if language == _CUDA:
        yield from programs
        return
    search = _SearchPath.of(compiler)
    yield compiler
    yield from search.find_programs(_LINKER_PARTS)
    yield from search.find_files((*_COMPILER_FILES, *_LINKED))


def _cuda_programs(compiler: str, host: str) -> Iterator[str]:
    """Yield nvcc, and the programs and files of its dry run, with the host compiler's."""
    yield compiler
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "empty.cu")
        source.touch()
        command = [compiler, "--dryrun", "-c", str(source), "-o", f"{source}.o"]
        if host:
            command += ["-ccbin", host]
        plan = _output(command, errors=True)
    variables: dict[str, str] = {}
    for line in plan.splitlines():
        if not line.startswith("#$ "):
            continue
        name, is_variable, value = line[3:].partition("=")
        if is_variable and re.fullmatch(r"\w+", name):
            variables[name] = value
            continue
        program = re.sub(r"\$(\w+)", lambda match: variables.get(match[1], ""), line[3:].replace('"', ""))
        name = program.split(" ")[0]
        path = shutil.which(name, path=variables.get("PATH"))
        if path is None or os.path.basename(name) == _DELETES:
            continue
        path = os.path.normpath(path)
        if os.path.basename(path) in _CUDA_PARTS:
            yield path
        else:
            yield from _programs(path)  # the host compiler
    here = variables.get("_HERE_", "")
    for name in (*_CUDA_PARTS, "nvcc.profile"):
        yield os.path.join(here, name)
    for library in sorted(Path(variables.get("NVVMIR_LIBRARY_DIR", "/nonexistent")).glob("*.bc")):
        yield os.path.normpath(library)


def libraries_of(programs: Iterable[str]) -> Iterator[str]:
    """Yield the libraries that programs load, without those of the C library."""
    ldd = shutil.which("ldd")
    if ldd is None:
        return
    found: dict[str, None] = {}
    for line in _output([ldd, *dict.fromkeys(programs)]).splitlines():
        match = _LIBRARY.search(line)
        if match and not _RUNTIME.search(os.path.basename(match[1])):
            found[match[1]] = None
    yield from found


def named_by_script(path: str) -> Iterator[str]:
    """Yield the files that a linker script names, such as libc.so."""
    if not os.path.isfile(path) or os.path.getsize(path) > _SMALL:
        return
    with open(path, "rb") as file:
        text = file.read()
    if text.startswith(_NO_SCRIPT):
        return
    for word in _FILE_NAME.findall(text):
        named = os.path.join(os.path.dirname(path), os.fsdecode(word))
        if os.path.isfile(named):
            yield os.path.normpath(named)


def _output(command: Sequence[str], *, errors: bool = False) -> str:
    """Return what a program prints, or on which it ends with an error; empty if it cannot be run."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            encoding="utf-8",
            errors="surrogateescape",
            env=os.environ | {"LC_ALL": "C"},
        )
    except OSError:
        return ""
    return done.stdout
