"""nvcc refuses a GCC that is newer than the toolkit knows: an older one is taken, or named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_files import program, write

from groundwork.errors import PreflightError
from groundwork.host_compiler import find_gcc_suffix, read_newest_gcc
from megabuild.providers.local.compilers import probe

GCC = "echo 'g++ (Debian 9.3-1) {0}\nCopyright (C) 2026 Free Software Foundation, Inc.'"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs: g++ is GCC 16."""
    install(tmp_path, "g++", "16.2.0")
    return tmp_path


def install(folder: Path, name: str, version: str) -> None:
    program(folder / name, GCC.format(version))


def test_the_newest_accepted_gcc_is_taken_and_another_compiler_has_no_limit(programs: Path) -> None:
    for version in ("15.1.0", "13.1.0"):
        for name in ("gcc", "g++"):
            install(programs, f"{name}-{version[:2]}", version)
    assert find_gcc_suffix(16, str(programs)) == ""
    assert find_gcc_suffix(15, str(programs)) == "-15"
    assert find_gcc_suffix(14, str(programs)) == "-13"
    program(programs / "g++", "echo clang version 21.1.0")
    assert find_gcc_suffix(9, str(programs)) == find_gcc_suffix(9, str(programs / "empty")) == ""


def test_the_compiler_that_would_be_used_is_asked_for_its_version(programs: Path) -> None:
    install(programs, "c++", "14.1.0")
    assert find_gcc_suffix(15, str(programs), compiler="c++") == ""
    with pytest.raises(PreflightError, match=r"^c\+\+ is GCC 14, "):
        find_gcc_suffix(13, str(programs), compiler="c++")


def test_the_package_to_install_is_named(programs: Path) -> None:
    install(programs, "g++-15", "15.1.0")  # without gcc-15
    with pytest.raises(PreflightError, match=r"GCC 16.* GCC 15") as refused:
        find_gcc_suffix(15, str(programs))
    assert "install g++-15" in refused.value.remedy


@pytest.mark.parametrize(
    ("text", "newest"),
    [
        ("#if defined(__GNUC__)\n#if __GNUC__ > 15\n#error -- unsupported GNU version! gcc\n", 15),
        ("#  if __GNUC__>14 \n", 14),
        ("#if __GNUC__ < 6\n", None),
        (None, None),
    ],
)
def test_the_toolkits_own_header_has_the_limit(tmp_path: Path, text: str | None, newest: int | None) -> None:
    if text is not None:
        write(tmp_path / "crt" / "host_config.h", text)
    assert read_newest_gcc(tmp_path) == newest


def test_the_machine_s_compilers_are_packaged_by_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    expected = probe()
    for name in ("gcc", "g++"):
        (tmp_path / f"{name}-99").symlink_to(shutil.which(name) or "")
    for name in ("sh", "readlink", "getconf", "as", "ld"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe(suffix="-99")
    assert (found.cxx, found.version) == (expected.cxx, expected.version)
