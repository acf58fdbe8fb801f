"""A small CMake tree and its environment, with real compilers, as build_staging.sh builds them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import cmake
from small_files import program, write

from tree_inputs import compare, outputs, snapshot
from tree_inputs.compare import CONFIGURED, Comparison
from tree_inputs.contents import Contents
from tree_inputs.tree import Tree

#: The date of an environment's files: older than each object.
OLD = 1_500_000_000
CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(world C CXX)
find_package(Foo QUIET CONFIG)
if(Foo_FOUND)
  add_definitions(-DFOO=${Foo_VALUE})
endif()
include_directories(SYSTEM "$ENV{PREFIX}/first" "$ENV{PREFIX}/include")
include_directories("${CMAKE_BINARY_DIR}" "${CMAKE_SOURCE_DIR}/own")
add_custom_command(
  OUTPUT generated.h
  COMMAND "$ENV{PREFIX}/bin/generate" generated.h
  DEPENDS "${CMAKE_SOURCE_DIR}/generated.txt")
add_library(plain STATIC plain.c)
add_library(user STATIC user.cpp)
add_library(asker STATIC asker.cpp)
add_library(maker STATIC maker.cpp generated.h)
add_executable(say say.cpp)
target_link_directories(say PRIVATE "$ENV{PREFIX}/lib-first" "$ENV{PREFIX}/lib")
target_link_libraries(say plain user asker maker "$ENV{PREFIX}/lib/libnamed.a" -lsearched)
install(TARGETS say DESTINATION bin)
install(DIRECTORY "$ENV{PREFIX}/include/pack" DESTINATION include)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/own" DESTINATION include)
"""
SOURCES = {
    "CMakeLists.txt": CMAKE,
    "generated.txt": "",
    "own/own.h": "#define OWN 1\n",
    "plain.c": "int plain(void) { return 1; }\n",
    "user.cpp": """\
#include <pack/value.h>
#include <linked.h>
#include "own.h"
int user() { return VALUE * 10 + LINKED; }
""",
    "asker.cpp": """\
#include <pack/asking.h>
#if __has_include(<optional.h>)
int asker() { return 2 + ASKED; }
#else
int asker() { return 1 + ASKED; }
#endif
""",
    "maker.cpp": '#include "generated.h"\nint maker() { return GENERATED; }\n',
    "say.cpp": """\
#include <cstdio>
int user(); int asker(); int maker();
extern "C" int plain(void); extern "C" int named(void); extern "C" int searched(void);
#ifndef FOO
#define FOO 0
#endif
#ifndef BRAND
#define BRAND 0
#endif
int main() {
    std::printf("plain=%d user=%d asker=%d maker=%d named=%d searched=%d foo=%d brand=%d\\n",
        plain(), user(), asker(), maker(), named(), searched(), FOO, BRAND);
}
""",
}
ASKING = """\
#if __has_include("other.h")
#define ASKED 10
#else
#define ASKED 0
#endif
"""
#: The program itself: a start of pip's, a Python script, takes longer than most of its work here.
_CMAKE = os.path.join(cmake.CMAKE_BIN_DIR, "cmake")
#: Folders of the machine's own files.
_MACHINE = ("/usr/", "/lib", sys.prefix)
OBJECTS = frozenset({"plain.c", "user.cpp", "asker.cpp", "maker.cpp", "say.cpp"})


class OnceHashed(Contents):
    """Hashes the machine's own files once, which no test changes."""

    _machine: ClassVar[dict[str, str]] = {}

    def of(self, path: str) -> str:
        """Return the sha256 of a file, or ABSENT."""
        if not path.startswith(_MACHINE):
            return super().of(path)
        if path not in self._machine:
            self._machine[path] = super().of(path)
        return self._machine[path]


@dataclass(frozen=True)
class World:
    """A tree below `folder`, and an environment in its folder ``prefix``."""

    folder: Path

    @property
    def prefix(self) -> Path:
        """The environment."""
        return self.folder / "prefix"

    @property
    def tree(self) -> Path:
        """The sources."""
        return self.folder / "tree"

    @property
    def build(self) -> Path:
        """The build folder."""
        return self.tree / "build"

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """The variables of a build script."""
        own = {"PREFIX": str(self.prefix), "CXX": str(self.prefix / "bin/c++"), "LC_ALL": "C"}
        return {**os.environ, **own}

    def make(self) -> None:
        """Write the sources and the environment."""
        for name, text in SOURCES.items():
            write(self.tree / name, text)
        self.header("pack/value.h", "#define VALUE 1\n")
        self.header("pack/asking.h", ASKING)
        self.header("one.h", "#define LINKED 1\n")
        self.header("two.h", "#define LINKED 2\n")
        self.link("include/linked.h", "one.h")
        self.archive("lib/libnamed.a", "named", 1)
        self.archive("lib/libsearched.a", "searched", 1)
        for folder in ("first", "lib-first"):
            (self.prefix / folder).mkdir()
        self.program("bin/c++", 'exec /usr/bin/c++ "$@"')
        self.program("bin/generate", 'echo "#define GENERATED 1" >"$1"')

    def header(self, name: str, text: str) -> None:
        """Write a header of the environment with a date older than each object."""
        self.file(f"include/{name}", text)

    def file(self, name: str, text: str) -> None:
        """The same for any file."""
        path = self.prefix / name
        path.unlink(missing_ok=True)
        os.utime(write(path, text), (OLD, OLD))

    def program(self, name: str, script: str) -> None:
        """The same for a program."""
        path = self.prefix / name
        path.unlink(missing_ok=True)
        os.utime(program(path, script), (OLD, OLD))

    def link(self, name: str, target: str) -> None:
        """Make a link in the environment, with the same date."""
        path = self.prefix / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
        os.utime(path, (OLD, OLD), follow_symlinks=False)

    def archive(self, name: str, function: str, value: int) -> None:
        """Write a static library with one function, with the same date."""
        path = self.prefix / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        source = write(self.folder / "scratch" / "made.c", f"int {function}(void) {{ return {value}; }}\n")
        made = source.with_suffix(".o")
        subprocess.run(["/usr/bin/cc", "-c", source, "-o", made], check=True)
        subprocess.run(["ar", "rcsD", path, made], check=True)
        os.utime(path, (OLD, OLD))

    def package(self, name: str, *files: str) -> None:
        """Write the environment's record of a package with these files."""
        document = {"name": name, "version": "1", "files": files}
        write(self.prefix / "conda-meta" / f"{name}-1-0.json", json.dumps(document))

    def compare(self) -> Comparison:
        """Remove the outputs that saw other files."""
        return compare.compare(self.build, self.environment)

    def configure(self) -> None:
        """Configure from scratch, unless that was done.

        CMake keeps what it found out about compilers: to find it again takes three times as long as all the rest.
        """
        if (self.build / CONFIGURED).exists():
            return
        cache = self.build / "CMakeCache.txt"
        if cache.exists():
            of_cmake = [line for line in cache.read_text().splitlines() if line.startswith("CMAKE_")]
            write(cache, "\n".join([*of_cmake, ""]))
        prefix = [f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_INSTALL_PREFIX={self.tree / 'torch'}"]
        self.run(_CMAKE, "-G", "Ninja", "-S", str(self.tree), "-B", str(self.build), *prefix)
        write(self.build / CONFIGURED, "as in build_staging.sh\n")

    def begin(self) -> None:
        """Record the files with which the compile begins."""
        outputs.remove_dead(Tree.load(self.build))
        snapshot.begin(self.build, self.environment)

    def ninja(self, *targets: str) -> None:
        """Compile."""
        self.run("ninja", "-C", str(self.build), *targets)

    def record(self) -> snapshot.Recorded:
        """Record the files that the compile read."""
        recorded = snapshot.record(self.build, self.environment)
        assert recorded is not None
        return recorded

    def stage(self) -> Comparison:
        """Run the whole staging."""
        comparison = self.compare()
        self.configure()
        self.begin()
        self.ninja()
        self.record()
        return comparison

    def rebuild(self) -> set[str]:
        """Run the staging up to the end of the compile; return the sources that were compiled."""
        before = self.dates()
        self.compare()
        self.configure()
        self.ninja()
        return {name for name, date in self.dates().items() if before.get(name) != date}

    def dates(self) -> dict[str, int]:
        """Return the dates of the objects by the names of their sources."""
        found = {}
        for path in self.build.rglob("CMakeFiles/*.dir/*.o"):
            found[path.name.removesuffix(".o")] = path.stat().st_mtime_ns
        return found

    def says(self) -> dict[str, str]:
        """Return the values that the tree's program prints."""
        said = subprocess.run([self.build / "say"], check=True, capture_output=True, text=True).stdout
        return dict(word.split("=") for word in said.split())

    def run(self, *command: str) -> str:
        """Run a program in the environment of a build script; return its output."""
        done = subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def copy_to(self, folder: Path) -> None:
        """Keep a copy with all dates."""
        shutil.copytree(self.folder, folder, symlinks=True)

    def restore_from(self, folder: Path) -> None:
        """Become the copy."""
        shutil.rmtree(self.folder)
        shutil.copytree(folder, self.folder, symlinks=True)
