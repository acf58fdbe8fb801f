"""The records of a compile's start and end, of a tree with a program in place of ninja and without compilers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from small_files import program, write

from cmake_python_swap.ninja_dry_run import NinjaError
from tree_inputs import search, snapshot
from tree_inputs.contents import UNKNOWN, Contents
from tree_inputs.owners import Owners
from tree_inputs.record import COMPLETE, STARTED, Checks, Record, read
from tree_inputs.record import write as write_record

NINJA = """\
rule CXX_COMPILER__user
  command = c++
build one.o: CXX_COMPILER__user one.cpp
  INCLUDES = -I{top}/env/include -I{top}/tree/own
build two.o: CXX_COMPILER__user two.cpp
"""
DEPS = """\
one.o: #deps 3, deps mtime 1 (VALID)
    {top}/env/include/a.h
    {top}/tree/own/own.h
    {top}/elsewhere/b.h
"""


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The build folder."""
    monkeypatch.setattr(search, "_SYSTEM", ())
    monkeypatch.setattr(snapshot, "Owners", lambda environment: Owners(environment, tmp_path))
    folder = tmp_path / "tree/build"
    write(folder / "build.ninja", NINJA.format(top=tmp_path))
    write(folder / "deps", DEPS.format(top=tmp_path))
    ninja = program(tmp_path / "bin/ninja", f"cat {folder}/deps")
    cache = f"CMAKE_HOME_DIRECTORY:INTERNAL={folder.parent}\nCMAKE_MAKE_PROGRAM:FILEPATH={ninja}\n"
    write(folder / "CMakeCache.txt", cache)
    for name in ("env/include/a.h", "env/include/deep/unread.h", "tree/own/own.h", "elsewhere/b.h"):
        write(tmp_path / name, name)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    return {"PREFIX": str(tmp_path / "env")}


def test_a_start_records_all_headers_that_a_compiler_may_find_and_the_record_before(
    build: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    write_record(build / COMPLETE, Record(files={}, folders={}, checks=Checks()))
    former = read(build / COMPLETE)
    assert former is not None
    number = snapshot.begin(build, environment)
    started = read(build / STARTED)
    assert started is not None
    include = str(tmp_path / "env/include")
    assert {f"{include}/a.h", f"{include}/deep/unread.h"} <= started.record.files.keys()
    assert number == len(started.record.files)
    assert include in started.record.folders
    assert started.record.checks.include_folders == (include,)
    assert (started.record.checks.follows, started.record.checks.ages) == (former.identity, {})
    (build / COMPLETE).unlink()
    snapshot.begin(build, environment)
    started = read(build / STARTED)
    assert started is not None
    assert started.record.checks.follows == ""


def test_a_start_that_fails_leaves_no_former_start(build: Path, environment: Mapping[str, str]) -> None:
    """It would say nothing of the objects that are compiled now."""
    snapshot.begin(build, environment)
    (build / "build.ninja").unlink()
    with pytest.raises(NinjaError):
        snapshot.begin(build, environment)
    assert not (build / STARTED).exists()


def test_a_complete_record_has_the_headers_outside_the_tree_and_the_ages_of_outputs(
    build: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    snapshot.begin(build, environment)
    os.utime(write(build / "one.o"), ns=(10**18 + 7, 10**18 + 7))
    changed = write(tmp_path / "elsewhere/b.h", "since the start")
    recorded = snapshot.record(build, environment)
    found = read(build / COMPLETE)
    assert recorded is not None
    assert found is not None
    assert found.record == recorded.record
    header = str(tmp_path / "env/include/a.h")
    assert found.record.files[header] == Contents().of(header)
    assert found.record.files[str(changed)] == UNKNOWN
    assert recorded.unknown == (str(changed),)
    assert not [path for path in found.record.files if path.startswith(f"{tmp_path}/tree/")], (
        "ninja sees those"
    )
    assert found.date % 10**9 == 0, "each file system keeps such a date"
    assert found.record.checks.ages == {"one.o": found.date - 10**18 - 7}
    assert not (build / STARTED).exists()
