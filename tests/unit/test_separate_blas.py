"""The macros of the BLAS move to a header of their own, which only the files that read them include."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from small_files import write
from stop_at_write import every_stop

import separate_blas

FILES = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.18)\nproject(Torch CXX C)\n",
    "cmake/Modules/FindBLAS.cmake": "  IF(HAS)\n    add_compile_options(-DBLAS_HAS_SBGEMM)\n  ENDIF(HAS)\n",
    "cmake/Modules/FindMKL.cmake": "    add_compile_options(-DMKL_HAS_SBGEMM)\n    add_compile_options(-DOTHER)\n",
    "cmake/Modules/FindMKLDNN.cmake": "    ADD_DEFINITIONS(-DDNNL_UKERNEL)\n    ADD_DEFINITIONS(-DIDEEP_USE_MKL)\n",
    "aten/src/ATen/CMakeLists.txt": 'configure_file(Config.h.in "${CMAKE_CURRENT_SOURCE_DIR}/Config.h")\n',
    "aten/src/ATen/Config.h.in": (
        "#pragma once\n#define AT_MKLDNN_ENABLED() 1\n#define AT_MKL_ENABLED() @AT_MKL_ENABLED@\n"
        "#define AT_POCKETFFT_ENABLED() 0\n#define AT_BUILD_WITH_BLAS() 1\n"
    ),
    "aten/src/ATen/Reader.cpp": "#include <ATen/Config.h>\n#if AT_MKL_ENABLED()\nint reader;\n#endif\n",
    "aten/src/ATen/Gemm.cpp": "#ifdef MKL_HAS_SBGEMM\n#endif\n",
    "aten/src/ATen/Other.cpp": "#include <ATen/Config.h>\nint AT_MKL_ENABLED_not_a_macro;\n",
    "torch/csrc/reader.h": "#pragma once\n#if !AT_POCKETFFT_ENABLED()\n#endif\n",
}
INCLUDE = "#include <ATen/BlasConfig.h>\n"


CONFIG = "aten/src/ATen/Config.h.in"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        write(tmp_path / name, text)
    return tmp_path


def test_files_that_read_a_macro_include_the_header_and_no_command_line_names_the_blas(tree: Path) -> None:
    readers = separate_blas.separate(tree)
    names = ["aten/src/ATen/Gemm.cpp", "aten/src/ATen/Reader.cpp", "torch/csrc/reader.h"]
    assert [str(path.relative_to(tree)) for path in readers] == names
    assert all((tree / name).read_text() == INCLUDE + FILES[name] for name in names)
    assert (tree / "aten/src/ATen/Other.cpp").read_text() == FILES["aten/src/ATen/Other.cpp"]
    text = "".join(path.read_text() for path in sorted((tree / "cmake/Modules").iterdir()))
    assert [line.strip() for line in text.splitlines() if "-D" in line] == [
        "add_compile_options(-DOTHER)", "ADD_DEFINITIONS(-DDNNL_UKERNEL)",
    ]  # fmt: skip
    config = (tree / CONFIG).read_text()
    assert re.findall(r"AT_\w+\(\)", config) == ["AT_MKLDNN_ENABLED()", "AT_BUILD_WITH_BLAS()"]
    assert (tree / "aten/src/ATen/BlasConfig.h.in").read_text().splitlines()[2:] == [
        "#define AT_MKL_ENABLED() @AT_MKL_ENABLED@", "#define AT_POCKETFFT_ENABLED() 0",
        "#cmakedefine BLAS_HAS_SBGEMM", "#cmakedefine MKL_HAS_SBGEMM",
    ]  # fmt: skip
    assert (
        'BlasConfig.h.in "${CMAKE_CURRENT_SOURCE_DIR}/BlasConfig.h'
        in (tree / "aten/src/ATen/CMakeLists.txt").read_text()
    )
    top = (tree / "CMakeLists.txt").read_text()
    assert top.index("add_compile_definitions(AT_BLAS_CONFIG_SEPARATE)") < top.index("project(Torch")


def test_readers_are_found_in_all_folders_of_sources_also_with_bytes_that_are_no_text(tree: Path) -> None:
    """A file that asks for a definition compiles without it, to something else."""
    folders = ("aten/src/ATen/native", "c10/util", "caffe2/core", "functorch/csrc", "torch/csrc")
    suffixes = ("c", "cc", "cpp", "cu", "cuh", "h", "hpp", "mm")
    text = "// by Ren\udce9\n#ifdef MKL_HAS_SBGEMM\n#endif\n".encode(errors="surrogateescape")
    readers = {f"{folder}/{suffix}.{suffix}" for folder in folders for suffix in suffixes}
    for name in (*readers, "c10/util/notes.txt", "third_party/x/x.cpp"):
        write(tree / name, text)
    found = {str(path.relative_to(tree)) for path in separate_blas.separate(tree)}
    assert found - FILES.keys() == readers
    assert {(tree / name).read_bytes() for name in readers} == {INCLUDE.encode() + text}


@pytest.mark.parametrize(
    ("source", "definition", "compiles"),
    [
        ("Config.h", "", True),  # a user of the package
        ("Config.h", "-DAT_BLAS_CONFIG_SEPARATE", False),
        ("BlasConfig.h", "-DAT_BLAS_CONFIG_SEPARATE", True),
    ],
)
def test_a_macro_without_its_header_is_an_error(
    tree: Path, source: str, definition: str, compiles: bool
) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    separate_blas.separate(tree)
    for name in ("Config.h", "BlasConfig.h"):
        text = (tree / f"aten/src/ATen/{name}.in").read_text()
        (tree / f"aten/src/ATen/{name}").write_text(
            text.replace("@AT_MKL_ENABLED@", "1").replace("#cmakedefine", "//")
        )
    text = f"#include <ATen/{source}>\n#if !AT_MKL_ENABLED()\n#error wrong\n#endif\n"
    command = ["g++", "-fsyntax-only", "-I", "aten/src", *filter(None, [definition]), "-x", "c++", "-"]
    done = subprocess.run(command, input=text, cwd=tree, capture_output=True, text=True)
    assert (done.returncode == 0) == compiles, done.stderr


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("CMakeLists.txt", "project(Other)\n", "no line matches"),
        ("cmake/Modules/FindMKLDNN.cmake", "", "definitions of the BLAS not found"),
        ("aten/src/ATen/Reader.cpp", "ideep::dropout_forward::compute();\n", "calls a function of ideep"),
    ],
)
def test_sources_that_the_script_does_not_know_stay_as_they_are(
    tree: Path, name: str, text: str, problem: str
) -> None:
    (tree / name).write_text(text)
    before = {path: path.read_text() for path in tree.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=problem):
        separate_blas.separate(tree)
    assert {path: path.read_text() for path in tree.rglob("*") if path.is_file()} == before


def contents(tree: Path) -> dict[str, str]:
    return {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file()}


def test_sources_without_a_file_that_the_script_knows_are_compiled_as_they_are(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "aten/src/ATen/CMakeLists.txt").unlink()
    before = contents(tree)
    assert separate_blas.main([str(tree)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("warning: configs with another BLAS share fewer objects: ")
    assert "CMakeLists.txt: no such file" in printed
    assert contents(tree) == before


@pytest.mark.parametrize("full", [*range(9)])
def test_a_full_disk_changes_no_source_and_is_an_error(
    full: int, tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(tree)
    write_text = Path.write_text
    written: list[Path] = []

    def refuse(path: Path, text: str, **options: str) -> int:
        if len(written) == full:
            write_text(path, text[:1])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written.append(path)
        return write_text(path, text, **options)

    monkeypatch.setattr(Path, "write_text", refuse)
    assert separate_blas.main([str(tree)]) == 1
    assert "error: " in capsys.readouterr().err
    assert contents(tree) == before


def test_sources_that_a_kill_left_changed_in_part_are_an_error(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    separate_blas.separate(tree)
    expected = contents(tree)
    for name, text in FILES.items():
        write(tree / name, text)
    (tree / "aten/src/ATen/BlasConfig.h.in").unlink()
    unchanged = FILES[CONFIG]
    ends = set()
    for folder in every_stop(tree, separate_blas.separate):
        # as the build's script does
        done = (folder / "aten/src/ATen/BlasConfig.h.in").exists()
        was_unchanged = (folder / CONFIG).read_text() == unchanged
        code = 0 if done else separate_blas.main([str(folder)])
        assert code == (0 if was_unchanged or done else 1)
        if code == 0:
            assert contents(folder) == expected
        ends.add(code)
    assert ends == {0, 1}
    assert "sources that were changed in part; unpack them again" in capsys.readouterr().err


def test_a_source_in_an_unreadable_folder_is_not_passed_over(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may read a macro."""
    before = contents(tree)

    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("torch/csrc"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        assert separate_blas.main([str(tree)]) == 1
    assert "Permission denied" in capsys.readouterr().err
    assert contents(tree) == before


def test_a_file_keeps_its_mode(tree: Path) -> None:
    (tree / CONFIG).chmod(0o600)
    separate_blas.separate(tree)
    assert (tree / CONFIG).stat().st_mode & 0o777 == 0o600
