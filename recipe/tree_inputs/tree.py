"""A configured tree: its build statements by what they make, and the headers of its objects."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cmake_python_swap import cmake_cache
from cmake_python_swap.cmake_cache import CacheError
from cmake_python_swap.ninja_dry_run import Edge, Graph, NinjaError
from cmake_python_swap.python_swap import PYTHON_TARGETS

from .record import Kind

#: The language of files that are linked or archived.
LINK = "link"
_COMPILER_RULE = re.compile(r"^([A-Z]+)_COMPILER__")
#: Rules that make no output of the tree's own.
_OF_CMAKE = ("RERUN_CMAKE", "VERIFY_GLOBS", "CLEAN", "HELP")
_LINKER_RULE = re.compile(r"_LINKER__")
_CUDA = "CUDA"
_OF_CUDA = re.compile(r"cuda|nvrtc|nccl", re.IGNORECASE)
_INCLUDE = re.compile(r"^(-I|-isystem|-iquote|-idirafter|--include-path)=?(.*)$")
_DEPS = b": #deps "


@dataclass(frozen=True)
class Headers:
    """The files that objects read, by ninja's record of the last compile of each object.

    A set of objects is an integer in which each object has one bit: 1,700 objects read 3 million headers.
    """

    objects: tuple[str, ...]  #: as ninja names them; the number of an object is its bit
    readers: dict[str, int]  #: the objects that read a file, by its absolute path

    def members(self, objects: int) -> Iterator[str]:
        """Yield the names of a set of objects."""
        for number, name in enumerate(self.objects):
            if objects >> number & 1:
                yield name


@dataclass(frozen=True)
class Tree:
    """A tree that CMake configured for ninja."""

    build: str  #: absolute path of the build folder, without links
    root: str  #: the same of the sources
    cache: Mapping[str, str]  #: CMake's cache; empty if CMake has not finished since
    graph: Graph
    _real_folders: dict[str, str] = field(default_factory=dict, repr=False)
    _folders: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, build_dir: Path) -> Tree:
        """Read a tree. Raises NinjaError: It is not configured, or its files are damaged."""
        build = os.path.realpath(build_dir)
        cache = _read_cache(Path(build, cmake_cache.NAME))
        root = os.path.realpath(cache.get("CMAKE_HOME_DIRECTORY") or os.path.dirname(build))
        return cls(build=build, root=root, cache=cache, graph=Graph(Path(build)))

    def absolute(self, name: str) -> str:
        """Return the path of a file that ninja names."""
        return os.path.normpath(os.path.join(self.build, name))

    def is_outside(self, path: str) -> bool:
        """Return whether an absolute path is outside the tree, or a link leads out of it; ninja sees all others."""
        return not self._is_inside(path) or not self._is_inside(self.real(path))

    def _is_inside(self, path: str) -> bool:
        return f"{path}/".startswith((f"{self.root}/", f"{self.build}/"))

    def real(self, path: str) -> str:
        """Return the path of a file without links."""
        folder, name = os.path.split(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        real = os.path.join(self._real_folders[folder], name)
        return os.path.realpath(real) if os.path.islink(real) else real

    @cached_property
    def made(self) -> dict[str, Edge]:
        """The build statements by output, without names of other outputs and without CMake's own statement."""
        found: dict[str, Edge] = {}
        for edge in self.graph.edges:
            if edge.is_phony or edge.rule in _OF_CMAKE:
                continue
            for name in edge.outputs:
                if not name.startswith("${"):
                    found[name] = edge
        return found

    @cached_property
    def statements(self) -> tuple[Edge, ...]:
        """The build statements in `made`, each once."""
        return tuple({id(edge): edge for edge in self.made.values()}.values())

    @property
    def cmake_files(self) -> tuple[str, ...]:
        """The files that CMake read."""
        edge = self.graph.by_output.get("build.ninja")
        return edge.inputs if edge else ()

    def language(self, edge: Edge) -> str:
        """Return the language that a statement compiles, LINK, or "" for one that runs another program."""
        match = _COMPILER_RULE.match(edge.rule)
        if match:
            return match[1]
        return LINK if _LINKER_RULE.search(edge.rule) else ""

    def kind(self, edge: Edge) -> Kind:
        """Return the kind of the objects that a statement makes."""
        if self.language(edge) == _CUDA or ".cu." in edge.outputs[0]:
            return Kind.KERNELS
        target = self.graph.target(edge)
        if target in PYTHON_TARGETS:
            return Kind.BINDINGS
        return Kind.CUDA if _OF_CUDA.search(target) else Kind.CORE

    def include_folders(self, edge: Edge) -> tuple[str, ...]:
        """Return the folders in which the command of a statement searches headers, without the compiler's own."""
        text = f"{edge.variables.get('FLAGS', '')} {edge.variables.get('INCLUDES', '')}"
        if text not in self._folders:
            words = split(self.graph.expand(text, {}))
            self._folders[text] = tuple(map(self.absolute, _include_words(words)))
        return self._folders[text]

    def read_headers(self) -> Headers:
        """Return the headers of all objects. Raises NinjaError: ninja cannot be run."""
        command = [self.ninja, "-C", self.build, "-t", "deps"]
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        except OSError as error:
            raise NinjaError(f"cannot run {self.ninja}: {error.strerror}") from error
        objects: list[str] = []
        readers: dict[bytes, int] = {}
        bit = 0
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(b"    "):
                    readers[line] = readers.get(line, 0) | bit
                elif _DEPS in line:
                    bit = 1 << len(objects)
                    objects.append(os.fsdecode(line.partition(_DEPS)[0]))
        if process.returncode:
            raise NinjaError(f"{' '.join(command)} failed")
        by_path: dict[str, int] = {}
        for raw, mask in readers.items():
            path = self.absolute(os.fsdecode(raw[4:].rstrip(b"\n")))
            by_path[path] = by_path.get(path, 0) | mask
        return Headers(objects=tuple(objects), readers=by_path)

    @property
    def ninja(self) -> str:
        """The program with which the tree is built."""
        return self.cache.get("CMAKE_MAKE_PROGRAM", "ninja")


def _read_cache(path: Path) -> Mapping[str, str]:
    try:
        return {entry.name: entry.value for entry in cmake_cache.load(path)}
    except (CacheError, OSError, UnicodeDecodeError):
        return {}


def split(text: str) -> list[str]:
    """Return the words of a command line; without regard to quotes if these are not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _include_words(words: Sequence[str]) -> Iterator[str]:
    for number, word in enumerate(words):
        match = _INCLUDE.match(word)
        if match:
            folder = match[2] or "".join(words[number + 1 : number + 2])
            yield folder
