"""The statements of recipe/README.md on the feedstock's patches hold for this recipe."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from small_files import write
from test_recipe_scripts import settings

FEEDSTOCK = {f"{number:04}" for number in range(1, 24)}
FMT_PATCH = "recipe/patches/official/0009-fmt-of-the-environment.patch"
#: Two targets as fmt's own CMake files make them, whose headers tell which fmt they are of.
TARGETS = """\
{fmt}
set_target_properties({target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_LIST_DIR}}/include")
"""
PROJECT = """\
cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES CXX)
set(BUILD_SHARED_LIBS ON CACHE BOOL "")
include(cmake/Dependencies.cmake)
foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS)
  get_target_property(value fmt::fmt-header-only INTERFACE_${property})
  message(STATUS "${property}=${value}")
endforeach()
message(STATUS "libraries=${Caffe2_DEPENDENCY_LIBS} shared=${BUILD_SHARED_LIBS}")
"""


def patches(repository: Path) -> set[str]:
    """The patches, by their path from the recipe."""
    recipe = repository / "recipe"
    return {path.relative_to(recipe).as_posix() for path in (recipe / "patches").rglob("*.patch")}


def table(repository: Path) -> dict[str, str]:
    """The rows of README.md's table of patches: the feedstock's numbers, and what is done here."""
    rows = {}
    section = (repository / "recipe/README.md").read_text().partition("## Patches")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if re.match(r"\| \d{4}", line):
            numbers, _, here = line.strip("| ").split(" | ")
            rows[numbers] = here
    return rows


def flags(repository: Path, folder: Path, *names: str, **more: str) -> list[str]:
    """Variables that build_env.sh sets."""
    (folder / "env").mkdir(exist_ok=True)
    words = " ".join(f'"${{{name}-}}"' for name in names)
    script = f"source \"$RECIPE_DIR/build_env.sh\"; printf '%s\\n' {words}"
    done = subprocess.run(
        ["bash", "-euc", script],
        env=settings(repository, folder, **more),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


def test_readme_has_a_row_for_each_of_the_feedstock_s_patches(repository: Path) -> None:
    rows = table(repository)
    numbers = re.findall(r"(?<!/)\b\d{4}\b", " ".join(rows))  # not tensorpipe/0001
    assert sorted(numbers) == sorted(FEEDSTOCK)
    named = re.findall(r"`((?:official|debian)/\d{4}|[\w-]+\.patch)`", " ".join(rows.values()))
    for name in named:
        assert any(patch.startswith((f"patches/{name}-", f"patches/{name}")) for patch in patches(repository))


def test_patches_for_windows_are_not_needed_because_no_config_is_for_windows(repository: Path) -> None:
    assert not list((repository / ".ci_support").glob("win*"))
    assert "win-64" not in (repository / "conda_build_config.yaml").read_text()


def test_flags_need_no_escape_in_a_string_of_c(repository: Path, tmp_path: Path) -> None:
    """PyTorch writes them into macros.h, where the feedstock's 0017 escapes backslashes and quotes."""
    names = ("CXXFLAGS", "CMAKE_CUDA_FLAGS")
    cuda = {"cuda_compiler_version": "13.0", "torch_cuda_arch_list": "9.0"}
    written = flags(repository, tmp_path, *names, CXXFLAGS="-O2 -isystem /opt/include", **cuda)
    assert all("-ffile-prefix-map=" in text for text in written)
    assert not set('\\"') & set("".join(written))


def test_a_compile_of_the_official_source_takes_fmt_from_the_environment(
    repository: Path, tmp_path: Path
) -> None:
    assert flags(repository, tmp_path, "USE_SYSTEM_FMT") == ["1"]


@pytest.fixture
def dependencies(repository: Path, tmp_path: Path) -> Path:
    """A project with the lines of PyTorch's Dependencies.cmake that the patch changes, and two copies of fmt."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    patch = (repository / FMT_PATCH).read_text()
    hunks = [hunk.partition("\n")[2] for hunk in patch.split("@@ -")[1:]]
    before = [
        "".join(f"{line[1:]}\n" for line in hunk.splitlines() if line[:1] in ("", " ", "-")) for hunk in hunks
    ]
    own = "add_subdirectory(${PROJECT_SOURCE_DIR}/third_party/fmt)\n"
    write(tmp_path / "cmake/Dependencies.cmake", own.join(before))
    write(tmp_path / "CMakeLists.txt", PROJECT)
    vendored = "add_library(fmt INTERFACE)\nadd_library(fmt-header-only INTERFACE)\n"
    vendored += "add_library(fmt::fmt-header-only ALIAS fmt-header-only)"
    write(tmp_path / "third_party/fmt/CMakeLists.txt", TARGETS.format(fmt=vendored, target="fmt-header-only"))
    imported = "add_library(fmt::fmt-header-only INTERFACE IMPORTED)"
    channel = tmp_path / "env/lib/cmake/fmt"
    write(channel / "fmt-config.cmake", TARGETS.format(fmt=imported, target="fmt::fmt-header-only"))
    command = ["patch", "-p1", "--fuzz=0", "-s", "-i", str(repository / FMT_PATCH)]
    subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("switch", "folder", "definitions"),
    [
        ("ON", "env/lib/cmake/fmt", "FMT_NO_UNIQUE_ADDRESS=[[no_unique_address]]"),
        ("OFF", "third_party/fmt", "value-NOTFOUND"),  # here PyTorch's own lines would set it
    ],
)
def test_the_switch_chooses_the_copy_of_fmt(
    dependencies: Path, switch: str, folder: str, definitions: str
) -> None:
    command = ["cmake", "-S", ".", "-B", "build", f"-DUSE_SYSTEM_FMT={switch}", "-DCMAKE_PREFIX_PATH=env"]
    command[-1] = f"-DCMAKE_PREFIX_PATH={dependencies / 'env'}"
    said = subprocess.run(command, cwd=dependencies, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f"-- INCLUDE_DIRECTORIES={dependencies / folder}/include\n" in said
    assert f"-- COMPILE_DEFINITIONS={definitions}\n" in said
    assert "-- libraries=fmt::fmt-header-only shared=ON\n" in said
