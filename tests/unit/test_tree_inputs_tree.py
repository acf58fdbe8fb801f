"""A configured tree: which files are outside, what its statements make, and the headers that ninja noted."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_files import program, write

from cmake_python_swap.ninja_dry_run import NinjaError
from tree_inputs.record import Kind
from tree_inputs.tree import LINK, Tree

NINJA = """\
rule CXX_COMPILER__core
  command = c++
rule CUDA_COMPILER__core
  command = nvcc
rule CXX_SHARED_LIBRARY_LINKER__core
  command = c++
rule CUSTOM_COMMAND
  command = $COMMAND
rule RERUN_CMAKE
  command = cmake
build build.ninja: RERUN_CMAKE CMakeLists.txt FindBLAS.cmake
build all: phony lib/libcore.so
build core.o: CXX_COMPILER__core core.cpp
  OBJECT_DIR = caffe2/CMakeFiles/torch_cpu.dir
  FLAGS = -O2 -I../own -isystem /env/first --include-path=/env/second
  INCLUDES = -I /env/third -iquote quoted -isystem=/env/fourth -Ififth
build cuda.o: CXX_COMPILER__core cuda.cpp
  OBJECT_DIR = caffe2/CMakeFiles/torch_cuda.dir
build python.o: CXX_COMPILER__core python.cpp
  OBJECT_DIR = caffe2/CMakeFiles/torch_python.dir
build kernel.o: CUDA_COMPILER__core kernel.cu
  OBJECT_DIR = caffe2/CMakeFiles/torch_cpu.dir
build kernel.cu.o: CXX_COMPILER__core kernel.cu
  OBJECT_DIR = caffe2/CMakeFiles/torch_cpu.dir
build lib/libcore.so | ${cmake_ninja_workdir}lib/libcore.so: CXX_SHARED_LIBRARY_LINKER__core core.o
build one.h two.h: CUSTOM_COMMAND
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "tree/build"
    write(folder / "build.ninja", NINJA)
    ninja = program(tmp_path / "bin/ninja", f'[ "$*" = "-C {folder} -t deps" ] && cat {folder}/deps')
    write(
        folder / "CMakeCache.txt",
        f"CMAKE_HOME_DIRECTORY:INTERNAL={folder.parent}\nCMAKE_MAKE_PROGRAM:FILEPATH={ninja}\n",
    )
    return folder


@pytest.mark.parametrize(
    ("name", "is_outside"),
    [
        ("tree/own/a.h", False),
        ("tree/build/a.h", False),
        ("tree", False),
        ("tree-of-others/a.h", True),
        ("env/a.h", True),
        ("tree/linked.h", True),
        ("tree/linked/a.h", True),
        ("tree/itself/own/a.h", False),
        ("tree/dangling.h", True),
    ],
)
def test_a_file_behind_a_link_out_of_the_tree_is_outside(name: str, is_outside: bool, build: Path) -> None:
    """ninja sees the date of the link's folder only."""
    top = build.parents[1]
    write(top / "env/a.h")
    write(top / "tree/own/a.h")
    for link, target in {
        "linked.h": "../env/a.h",
        "linked": "../env",
        "itself": ".",
        "dangling.h": "/gone.h",
    }.items():
        (top / "tree" / link).symlink_to(target)
    assert Tree.load(build).is_outside(str(top / name)) is is_outside


def test_statements_are_those_that_make_files_each_once(build: Path) -> None:
    tree = Tree.load(build)
    first = {edge.outputs[0]: (tree.language(edge), tree.kind(edge)) for edge in tree.statements}
    assert first == {
        "core.o": ("CXX", Kind.CORE),
        "cuda.o": ("CXX", Kind.CUDA),
        "python.o": ("CXX", Kind.BINDINGS),
        "kernel.o": ("CUDA", Kind.KERNELS),
        "kernel.cu.o": ("CXX", Kind.KERNELS),
        "lib/libcore.so": (LINK, Kind.CORE),
        "one.h": ("", Kind.CORE),
    }
    assert tree.made.keys() == {*first, "two.h"}
    assert len(tree.statements) == len(first)
    assert tree.cmake_files == ("CMakeLists.txt", "FindBLAS.cmake")


def test_folders_of_headers_are_in_flags_and_includes_in_each_form(build: Path) -> None:
    tree = Tree.load(build)
    own = [str(build.parent / "own")]
    of_flags = [*own, "/env/first", "/env/second"]
    of_includes = ["/env/third", str(build / "quoted"), "/env/fourth", str(build / "fifth")]
    assert list(tree.include_folders(tree.made["core.o"])) == [*of_flags, *of_includes]
    assert tree.include_folders(tree.made["cuda.o"]) == ()


def test_headers_are_those_of_ninjas_record_whatever_their_spelling(build: Path) -> None:
    """An object without headers has its own bit, too."""
    write(
        build / "deps",
        "core.o: #deps 3, deps mtime 1 (VALID)\n    /env/a.h\n    ../own/b.h\n\n"
        "none.o: #deps 0, deps mtime 1 (VALID)\n\n"
        "cuda.o: #deps 2, deps mtime 1 (STALE)\n    /env/x/../a.h\n    c.h\n\n",
    )
    headers = Tree.load(build).read_headers()
    assert headers.objects == ("core.o", "none.o", "cuda.o")
    assert headers.readers == {
        "/env/a.h": 0b101,
        str(build.parent / "own/b.h"): 0b001,
        str(build / "c.h"): 0b100,
    }
    assert list(headers.members(0b101)) == ["core.o", "cuda.o"]


@pytest.mark.parametrize("is_missing", [True, False])
def test_a_ninja_that_fails_is_no_tree_without_headers(is_missing: bool, build: Path) -> None:
    if is_missing:
        (build.parents[1] / "bin/ninja").unlink()
    with pytest.raises(NinjaError, match="bin/ninja"):
        Tree.load(build).read_headers()


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"no entry at all\n", b""])
def test_a_tree_without_a_whole_cache_is_the_folder_above_its_build(
    content: bytes | None, build: Path
) -> None:
    """CMake was killed while it configured: it finds the other settings again."""
    cache = build / "CMakeCache.txt"
    cache.unlink()
    if content is not None:
        cache.write_bytes(content)
    tree = Tree.load(build)
    assert (tree.root, dict(tree.cache), tree.ninja) == (str(build.parent), {}, "ninja")
