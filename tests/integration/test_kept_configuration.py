"""Returning to the configuration before a swap, in a small tree of the real CMake.

The tree has all kinds of files that CMake writes and that differ between two Pythons: an object's command line, a
header, the input of a generator, an install script. ``FLAVOUR`` is in place of the Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from stop_at_write import every_stop

from cmake_python_swap import __main__ as command_line
from cmake_python_swap import cmake_cache, cmake_regenerate, staged_configuration, undo_folder

FILES = {
    "CMakeLists.txt": r"""
cmake_minimum_required(VERSION 3.18)
project(tiny C)
set(FLAVOUR one CACHE STRING "")
configure_file(flavour.h.in flavour.h)
configure_file(words.txt.in words.txt)
file(WRITE ${CMAKE_BINARY_DIR}/empty.c "typedef int empty;\n")
add_custom_command(OUTPUT words.c DEPENDS ${CMAKE_BINARY_DIR}/words.txt
                   COMMAND ${CMAKE_COMMAND} -E copy words.txt words.c)
add_library(core STATIC core.c ${CMAKE_BINARY_DIR}/empty.c)
add_library(by_option OBJECT option.c)
target_compile_definitions(by_option PRIVATE FLAVOUR=${FLAVOUR})
add_library(by_header OBJECT header.c)
target_include_directories(by_header PRIVATE ${CMAKE_BINARY_DIR})
add_library(by_words OBJECT ${CMAKE_BINARY_DIR}/words.c)
install(TARGETS core DESTINATION lib/${FLAVOUR})
""",
    "flavour.h.in": "#define FLAVOUR @FLAVOUR@\n",
    "words.txt.in": 'const char *words = "@FLAVOUR@";\n',
    "core.c": "int core(void) { return 1; }\n",
    "text.h": "#define TEXT(X) #X\n#define STRING(X) TEXT(X)\n",
    "option.c": '#include "text.h"\nconst char *option = STRING(FLAVOUR);\n',
    "header.c": '#include "flavour.h"\n#include "text.h"\nconst char *header = STRING(FLAVOUR);\n',
}
SETTINGS = "configured-with.txt"
WRITTEN = ("flavour.h", "words.txt", "empty.c", "cmake_install.cmake")
OBJECTS = {f"CMakeFiles/by_{name}.dir/{name}.c.o" for name in ("option", "header", "words")}


class Tree:
    """The tree, configured for the flavour ``one`` and compiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.build = folder / "build"

    def configure(self) -> None:
        run("cmake", "-S", self.folder, "-B", self.build, "-G", "Ninja")
        (self.build / SETTINGS).write_text("one")

    def compile(self) -> set[str]:
        """Compile; return the objects that ninja made again."""
        before = self.dates()
        run("ninja", "-C", self.build)
        after = self.dates()
        return {name for name, date in after.items() if date != before.get(name)}

    def dates(self) -> Mapping[str, int]:
        paths = self.build.rglob("*.o")
        return {str(path.relative_to(self.build)): path.stat().st_mtime_ns for path in paths}

    def swap(self, flavour: str) -> None:
        cache = cmake_cache.load(self.build / cmake_cache.NAME)
        cache.set("FLAVOUR", flavour)
        cmake_cache.save(cache, self.build / cmake_cache.NAME)
        cmake_regenerate.regenerate(self.build)

    def configuration(self) -> Mapping[str, bytes]:
        """Return the content of all files that CMake has written."""
        found = {}
        for path in cmake_regenerate.not_made_by_ninja(self.build):
            if path.suffix != ".orig":
                found[str(path.relative_to(self.build))] = path.read_bytes()
        return found

    def flavours(self) -> set[str]:
        """Return the flavours of all objects."""
        found = set()
        for name in OBJECTS:
            content = (self.build / name).read_bytes()
            found |= {flavour for flavour in ("one", "two", "three") if flavour.encode() in content}
        return found


def run(*words: str | Path) -> None:
    subprocess.run([*map(str, words)], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    folder = tmp_path / "tree"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_text(content)
    made = Tree(folder)
    made.configure()
    assert made.compile() > OBJECTS
    return made


def command(name: str, tree: Tree) -> None:
    assert command_line.main([name, str(tree.build), SETTINGS]) == 0


def swapped(tree: Tree) -> None:
    """Keep the configuration, and swap twice; compile each time."""
    command("keep", tree)
    for flavour in ("two", "three"):
        tree.swap(flavour)
        assert tree.compile() == OBJECTS
        assert tree.flavours() == {flavour}
        command("keep", tree)  # each output does


def test_the_tree_is_configured_as_before_and_as_from_scratch(tree: Tree) -> None:
    before = tree.configuration()
    swapped(tree)
    assert not (tree.build / SETTINGS).exists()
    assert tree.configuration() != before
    command("return", tree)
    assert tree.configuration() == before
    assert (tree.build / SETTINGS).read_text() == "one"
    assert tree.compile() == OBJECTS, "libtorch's objects stay"
    assert tree.flavours() == {"one"}
    assert tree.compile() == set()
    shutil.rmtree(tree.build)
    tree.configure()
    scratch = tree.configuration()
    for name in ("build.ninja", "CMakeCache.txt", "CMakeFiles/rules.ninja", *WRITTEN):
        assert scratch[name] == before[name]


def test_cmake_does_not_run_again_unless_a_source_of_it_has_changed(tree: Tree) -> None:
    swapped(tree)
    command("return", tree)
    date = (tree.build / "build.ninja").stat().st_mtime_ns
    tree.compile()
    assert (tree.build / "build.ninja").stat().st_mtime_ns == date
    with (tree.folder / "CMakeLists.txt").open("a") as file:
        file.write("add_library(new OBJECT core.c)\n")
    # CMake writes empty.c on every run
    assert tree.compile() == {"CMakeFiles/new.dir/core.c.o", "CMakeFiles/core.dir/empty.c.o"}


def test_without_a_kept_configuration_nothing_changes(tree: Tree) -> None:
    before = tree.configuration()
    command("return", tree)
    assert tree.configuration() == before
    (tree.build / SETTINGS).unlink()
    command("keep", tree)
    command("return", tree)
    assert not (tree.build / SETTINGS).exists()


def test_a_configuration_that_was_kept_before_another_one_is_forgotten(tree: Tree) -> None:
    """A kill before `keep` removed the file, or a staging that configured from scratch after a kill."""
    swapped(tree)
    (tree.build / SETTINGS).write_text("three")
    before = tree.configuration()
    command("return", tree)
    assert tree.configuration() == before
    assert not (tree.build / staged_configuration.NAME).exists()


def test_after_a_failure_the_tree_is_to_be_configured_from_scratch(tree: Tree) -> None:
    swapped(tree)
    (tree.build / staged_configuration.NAME / "build.ninja").unlink()
    assert command_line.main(["return", str(tree.build), SETTINGS]) == 1
    assert not (tree.build / SETTINGS).exists()
    assert not (tree.build / staged_configuration.NAME).exists()


def test_a_keep_killed_anywhere_leaves_the_configuration_or_its_whole_copy(tree: Tree) -> None:
    before = tree.configuration()

    def keep(folder: Path) -> None:
        staged_configuration.keep(folder / "build", SETTINGS)

    for folder in every_stop(tree.folder, keep, step=3):
        build = folder / "build"
        if not (build / SETTINGS).exists():
            names = {str(copy.relative_to(build / staged_configuration.NAME)) for copy in kept(build)}
            assert names == before.keys()
        keep(folder)
        assert {copy.read_bytes() for copy in kept(build)} == set(before.values())


def kept(build: Path) -> list[Path]:
    return undo_folder.copies(build, staged_configuration.NAME)


@pytest.mark.long  # ten seconds
def test_a_return_killed_anywhere_is_repeated_or_whole(tree: Tree) -> None:
    before = {name: content for name, content in tree.configuration().items() if name != SETTINGS}
    swapped(tree)

    def back(folder: Path) -> None:
        staged_configuration.restore(folder / "build", SETTINGS)

    template = tree.folder
    home = template.with_name("home")
    template.rename(home)
    tried = 0
    for folder in every_stop(home, back):
        folder.rename(template)  # command lines have the tree's path
        if not (tree.build / SETTINGS).exists():
            assert (tree.build / staged_configuration.NAME).exists()
            back(template)
        after = tree.configuration()
        # the other new files are temporary ones
        after = {name: after[name] for name in before}
        assert after == before
        assert tree.compile() == OBJECTS
        assert tree.flavours() == {"one"}
        shutil.rmtree(template)
        tried += 1
    assert tried > 10
    assert os.path.exists(home)
