"""The follower against what the engine does with its log files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from groundwork.names import PackageId
from megabuild.engine.logs import UNKNOWN, LogFollower


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "out" / "bld" / "rattler-build_x" / "work"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[LogFollower]:
    with LogFollower(tmp_path) as following:
        yield following


def facts(folder: Path, **values: str) -> None:
    (folder / "build_env.sh").write_text(
        "\n".join(f"export {name}={value}" for name, value in values.items())
    )


def texts(follower: LogFollower, *, last: bool = False) -> list[str]:
    return [line.text for line in follower.poll(last=last)]


def test_lines_come_once_and_only_when_they_are_complete(follower: LogFollower, work: Path) -> None:
    log = work / "conda_build.log"
    log.write_text("one\ntw")
    assert texts(follower) == ["one"]
    with log.open("ab") as file:
        file.write(b"o\ncaf\xe9\nthree")
    assert texts(follower) == ["two", "caf\N{REPLACEMENT CHARACTER}"]
    log.write_text("new\nfour")  # begun again
    assert texts(follower) == ["new"]
    assert texts(follower, last=True) == ["four"]


def test_a_log_that_is_begun_again_is_of_the_next_script(follower: LogFollower, work: Path) -> None:
    """rattler-build uses one work folder for all packages of a recipe."""
    found: list[tuple[str, str, str]] = []
    for build in ("py312_0", "py313_0"):
        facts(work, PKG_NAME="pytorch", PKG_BUILD_STRING=build, PY_VER=f"{build[2]}.{build[3:5]}")
        (work / "conda_build.log").write_text(f"{build}\n")
        for line in follower.poll():
            found.append((line.text, line.package.build_string, line.python))
    assert found == [("py312_0", "py312_0", "3.12"), ("py313_0", "py313_0", "3.13")]


@pytest.mark.parametrize("piece", [1 << 30, 70_000])
def test_a_line_without_an_end_is_cut(piece: int, follower: LogFollower, work: Path) -> None:
    line = b"x" * 5_000_000
    seen = []
    with (work / "conda_build.log").open("ab") as log:
        for start in range(0, len(line), piece):
            log.write(line[start : start + piece])
            log.flush()
            seen += texts(follower)
        log.write(b"\nafter\n")
        log.flush()
        seen += texts(follower)
    assert seen == ["x" * 100_000 + " (4900000 more bytes)", "after"]


def test_millions_of_empty_lines_are_counted(follower: LogFollower, work: Path) -> None:
    (work / "conda_build.log").write_bytes(b"before\n" + b"\n" * 3_000_000 + b"after\n")
    start = time.process_time()
    seen = texts(follower)
    assert time.process_time() - start < 5
    assert (seen[0], seen[-1]) == ("before", "after")
    assert len(seen) < 5000
    counted = sum(int(text.split()[2]) for text in seen if "more times" in text)
    assert counted + seen.count("") == 3_000_000


def test_a_log_is_read_to_its_end_after_its_removal(follower: LogFollower, work: Path) -> None:
    log = work / "conda_build.log"
    log.write_text("one\n")
    assert texts(follower) == ["one"]
    with log.open("a") as file:
        file.write("two\n")
    shutil.rmtree(work)
    assert texts(follower) == ["two"]
    assert texts(follower) == []


def test_a_replaced_log_belongs_to_the_next_script(follower: LogFollower, work: Path) -> None:
    log = work / "conda_build.log"
    facts(work, PY_VER="3.12")
    log.write_text("compile\n")
    (line,) = follower.poll()
    assert (line.package.name, line.python) == ("", "")
    log.unlink()
    log.write_text("package\n")
    facts(work, PY_VER="3.11", PKG_NAME="pytorch", PKG_VERSION="2.13.0", PKG_BUILD_STRING="cpu_py311_h1_0")
    (line,) = follower.poll()
    assert (line.package, line.python) == (PackageId("pytorch", "2.13.0", "cpu_py311_h1_0"), "3.11")


def test_a_log_that_is_no_copy_of_a_staging_s_is_read_from_its_start(
    follower: LogFollower, tmp_path: Path, work: Path
) -> None:
    for number, text in enumerate(("compile\n", "[1/2 1s] compile\nlink\n")):
        cached = tmp_path / "out" / "build_cache" / f"staging_{number}" / "work_dir" / "conda_build.log"
        cached.parent.mkdir(parents=True)
        cached.write_text(text)
    (work / "conda_build.log").write_text("one\ntwo\n")
    assert texts(follower) == ["one", "two"]


def test_staging_s_log_is_not_told_again_in_a_restored_work_folder(
    follower: LogFollower, tmp_path: Path, work: Path
) -> None:
    cached = tmp_path / "out" / "build_cache" / "staging_1" / "work_dir" / "conda_build.log"
    cached.parent.mkdir(parents=True)
    cached.write_text("[1/2 1s] compile\n[2/2 2s] link\n")
    log = work / "conda_build.log"
    log.write_text("[1/2 1s] com")  # the copy is under way
    assert texts(follower) == []
    shutil.copy(cached, log)
    assert texts(follower) == []
    with log.open("a") as file:
        file.write("package\n")
    assert texts(follower) == ["package"]


def test_a_test_is_named_after_its_folder(follower: LogFollower, tmp_path: Path) -> None:
    for folder in ("out/test/test_libtorch-cuda-linalgAb12Cd/test", "tmp/.tmpq/test_pytorchAb12Cd/test"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "conda_build.log").write_text("import torch\n")
        facts(tmp_path / folder, PREFIX="x")
    assert [(line.kind, line.package.name) for line in follower.poll()] == [
        ("test", "libtorch-cuda-linalg"),
        ("test", "pytorch"),
    ]


def test_a_log_whose_folder_vanished_is_nobody_s(follower: LogFollower, work: Path) -> None:
    (work / "conda_build.log").write_text("quick\n")
    assert [line.package.name for line in follower.poll()] == [UNKNOWN]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "linked folder"])
def test_a_log_that_is_no_file_of_the_engine_s_is_not_read(
    follower: LogFollower, tmp_path: Path, work: Path, kind: str
) -> None:
    private = tmp_path / "private"
    private.mkdir()
    (private / "conda_build.log").write_text("private\n")
    cached = tmp_path / "out" / "build_cache" / "staging_1" / "work_dir"
    cached.mkdir(parents=True)
    for log in (work / "conda_build.log", cached / "conda_build.log", work / "build_env.sh"):
        if kind == "link":
            log.symlink_to(private / "conda_build.log")
        elif kind == "pipe":
            os.mkfifo(log)
        elif kind == "folder":
            log.mkdir()
    if kind == "linked folder":
        work.rmdir()
        work.symlink_to(private)
    own = work.parent.with_name("own") / "work"
    own.mkdir(parents=True)
    (own / "conda_build.log").write_text("own\n")
    assert texts(follower) == ["own"]
