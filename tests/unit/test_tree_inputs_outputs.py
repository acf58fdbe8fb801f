"""Outputs of a kept tree are removed so that ninja makes them again, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_files import write
from stop_at_write import every_stop_in_place

from tree_inputs import outputs
from tree_inputs.tree import Tree

NINJA = """\
rule CXX_COMPILER__user
  command = c++
rule CXX_SHARED_LIBRARY_LINKER__user
  command = c++
rule CUSTOM_COMMAND
  command = $COMMAND
build user.o: CXX_COMPILER__user ../user.cpp | read.h
build libuser.so: CXX_SHARED_LIBRARY_LINKER__user user.o
build generated.h generated.cpp: CUSTOM_COMMAND ../generate.py
build kernel.cubin: CUSTOM_COMMAND ../kernel.cu
"""
HEADER = "# ninja log v7\n"
BINARIES = ("user.o", "libuser.so", "kernel.cubin")
GENERATED = ("generated.h", "generated.cpp")


def log(*names: str) -> str:
    return HEADER + "".join(f"1\t2\t3\t{name}\tabc\n" for name in names)


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """The build folder of a compiled tree."""
    folder = tmp_path / "tree/build"
    write(folder / "build.ninja", NINJA)
    for name in (*BINARIES, *GENERATED):
        write(folder / name, name)
    write(folder / ".ninja_log", log(*BINARIES, *GENERATED))
    write(folder / ".ninja_deps")
    write(folder / "CMakeCache.txt", f"CMAKE_HOME_DIRECTORY:INTERNAL={folder.parent}\n")
    return folder


def test_files_of_compilers_are_deleted_and_ninja_forgets_all_others(build: Path) -> None:
    """A generator that writes the same leaves the dates of its files: no object is compiled again."""
    (build / "libuser.so").unlink()
    removed = outputs.remove(Tree.load(build), ("user.o", "libuser.so", "generated.h"))
    assert removed == ("user.o", "generated.h")
    there = {name for name in (*BINARIES, *GENERATED) if (build / name).exists()}
    assert there == {"kernel.cubin", *GENERATED}
    assert (build / ".ninja_log").read_text() == log(*BINARIES, "generated.cpp")


def test_all_outputs_are_removed_wherever_a_kill_interrupts_it(build: Path) -> None:
    """ninja's log goes last: without it, the tree counts as one that was never compiled."""

    def prepare() -> None:
        for name in (*BINARIES, *GENERATED):
            write(build / name, name)
        write(build / ".ninja_log", log(*BINARIES))
        write(build / ".ninja_deps")

    def remove() -> None:
        assert outputs.remove_all(build, Tree.load(build))

    for _ in every_stop_in_place(build, prepare, remove):
        has_binaries = any((build / name).exists() for name in BINARIES)
        assert outputs.remove_all(build, Tree.load(build)) or not has_binaries
        left = {path.name for path in build.iterdir()}
        assert left == {"build.ninja", "CMakeCache.txt", *GENERATED}


def test_a_tree_that_cannot_be_read_loses_the_record_of_its_outputs(build: Path) -> None:
    assert outputs.remove_all(build, None)
    assert not outputs.remove_all(build, None)
    left = {path.name for path in build.iterdir()}
    assert left == {"build.ninja", "CMakeCache.txt", *BINARIES, *GENERATED}


@pytest.mark.parametrize("name", ["dead.h", "folder/dead.h", "../dead.h", "link-to-folder", "dangling"])
def test_a_file_that_only_a_former_configuration_made_is_deleted(name: str, build: Path) -> None:
    path = build / name
    if name == "link-to-folder":
        path.symlink_to(build.parent)
    elif name == "dangling":
        path.symlink_to("nothing")
    else:
        write(path)
    write(build / ".ninja_log", log(*BINARIES, name, *GENERATED))
    assert outputs.remove_dead(Tree.load(build)) == (name,)
    assert not path.is_symlink()
    assert not path.exists()


@pytest.mark.parametrize(
    "name", ["user.o", "generated.cpp", "read.h", "../user.cpp", "../source.h", "{out}/own.h"]
)
def test_a_file_that_the_configuration_makes_or_reads_is_kept(name: str, build: Path) -> None:
    """So is a source of this release that a former one generated, and every file outside the tree."""
    name = name.format(out=build.parents[1] / "out")
    path = write(build / name)
    write(build.parent / ".megabuild-sync.json", json.dumps(["source.h"]))
    write(build / ".ninja_log", log(name))
    assert outputs.remove_dead(Tree.load(build)) == ()
    assert path.exists()


def test_a_folder_in_place_of_a_former_output_is_kept(build: Path) -> None:
    write(build / "folder/file")
    write(build / ".ninja_log", log("folder"))
    assert outputs.remove_dead(Tree.load(build)) == ()
    assert (build / "folder/file").exists()


@pytest.mark.parametrize(
    ("text", "sources"),
    [(None, ()), ("[", ()), ("{}", ()), ('["a.h", "b.h"]', {"a.h", "b.h"})],
)
def test_a_damaged_list_of_sources_names_none(text: str | None, sources: object, tmp_path: Path) -> None:
    if text is not None:
        write(tmp_path / ".megabuild-sync.json", text)
    assert outputs.read_sources(tmp_path) == sources


def test_a_list_of_sources_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / ".megabuild-sync.json").mkdir()
    with pytest.raises(IsADirectoryError):
        outputs.read_sources(tmp_path)
