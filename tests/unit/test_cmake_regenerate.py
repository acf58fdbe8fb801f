"""Running CMake again: what it wrote without changing it keeps its time stamp."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from small_files import program, write

from cmake_python_swap.__main__ import main
from cmake_python_swap.cmake_regenerate import RegenerateError, regenerate

LONG_AGO = 1_000_000_000_000_000_000


@pytest.fixture
def build_dir(tmp_path: Path) -> Path:
    """A build folder whose cmake is a script beside it."""
    cache = tmp_path / "build" / "CMakeCache.txt"
    return write(cache, f"CMAKE_COMMAND:INTERNAL={tmp_path}/cmake\n").parent


def cmake(build_dir: Path, body: str) -> None:
    program(build_dir.parent / "cmake", f"cd '{build_dir}' || exit 1\n{body}")


def old_file(path: Path, content: str) -> Path:
    write(path, content)
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


def test_a_source_written_with_the_same_content_keeps_its_time(build_dir: Path) -> None:
    same, changed = old_file(build_dir / "sub/empty.cpp", "x\n"), old_file(build_dir / "config.h", "old\n")
    cmake(build_dir, "echo x > sub/empty.cpp; echo new > config.h")
    assert regenerate(build_dir) == 1
    assert same.stat().st_mtime_ns == LONG_AGO
    assert changed.stat().st_mtime_ns > LONG_AGO
    assert changed.read_text() == "new\n"


def test_a_back_end_that_calls_cmake_itself_keeps_times_too(
    build_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{build_dir.parent}:{os.environ['PATH']}")
    same = old_file(build_dir / "empty.cpp", "x\n")
    # scikit-build-core removed CMakeFiles/ because another Python's copy of it had been here
    (build_dir / "build.ninja").write_text("include CMakeFiles/rules.ninja\n")
    cmake(build_dir, "echo x > empty.cpp; exit 5")
    assert main(["cmake", "-S.", f"-B{build_dir}"]) == 5
    assert same.stat().st_mtime_ns == LONG_AGO


@pytest.mark.parametrize("words", [["-B", "{}"], ["-S.", "-B", "{}", "-GNinja"]], ids=str)
def test_the_build_folder_may_be_a_word_of_its_own(
    words: list[str], build_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{build_dir.parent}:{os.environ['PATH']}")
    same = old_file(build_dir / "empty.cpp", "x\n")
    cmake(build_dir, "echo x > empty.cpp")
    assert main(["cmake", *(word.format(build_dir) for word in words)]) == 0
    assert same.stat().st_mtime_ns == LONG_AGO


def test_a_failed_cmake_leaves_the_times_of_unchanged_files(build_dir: Path, tmp_path: Path) -> None:
    same = old_file(build_dir / "empty.cpp", "x\n")
    cmake(build_dir, "echo x > empty.cpp; exit 5")
    with pytest.raises(RegenerateError, match="exit code 5"):
        regenerate(build_dir, log=tmp_path / "log")
    assert same.stat().st_mtime_ns == LONG_AGO


def test_objects_new_deleted_and_installed_files_are_left_as_they_are(build_dir: Path) -> None:
    header = "lib.linux-x86_64-cpython-312/torch/a.h"
    made, copied = (old_file(build_dir / name, "x\n") for name in ("a.o", header))
    gone = old_file(build_dir / "gone.h", "x\n")
    (build_dir / "broken.h").symlink_to("nowhere")
    cmake(build_dir, f"echo x > a.o; echo x > {header}; rm gone.h; echo x > fresh.h")
    assert regenerate(build_dir) == 0
    assert min(made.stat().st_mtime_ns, copied.stat().st_mtime_ns) > LONG_AGO
    assert (gone.exists(), (build_dir / "fresh.h").exists()) == (False, True)


def test_the_command_line_ends_without_a_traceback(
    build_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cmake(build_dir, "exit 0")
    assert main(["regenerate", str(build_dir)]) == 0
    cmake(build_dir, "echo 'CMake Error: x'; exit 1")
    assert main(["regenerate", str(build_dir)]) == 1
    assert main(["regenerate", str(build_dir / "nowhere")]) == 1
    said = "".join(capfd.readouterr())
    assert "CMake Error: x" in said
    assert "nowhere/CMakeCache.txt" in said
