"""The first hour on a fresh machine: README's commands with Debian's own Python, an ordinary user and PyPI alone."""

from __future__ import annotations

import re
from pathlib import Path

import bare_root
import pytest
from bare_root import HOME, BareRoot, command_of, succeed
from small_files import program

from megabuild.providers.debian.root import SUITE

#: As pyenv leaves them for programs of Pythons that are not chosen.
SHIMS = ("cmake", "ninja", "python3.10", "python3.11", "python3.12", "python3.13")


@pytest.fixture(scope="module", params=[SUITE, pytest.param("forky", marks=pytest.mark.long)])
def machine(
    request: pytest.FixtureRequest, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> BareRoot:
    return bare_root.make(repository, tmp_path_factory.mktemp("home"), suite=request.param)


def test_the_first_commands_of_readme_work(machine: BareRoot, repository: Path) -> None:
    succeed(
        machine.run(*command_of(repository / "README.md", "build-locally.py", "linux_64_cpu ", "--rehearse"))
    )
    succeed(machine.run(*command_of(repository / "README.md", "env create", "linux_64_cpu-rehearsal")))
    imported = succeed(machine.run(*command_of(repository / "README.md", "env/bin/python", "import torch")))
    assert re.search(r"^2\.\d+\.\d+", imported, re.MULTILINE)
    changed = machine.run("git", "status", "--porcelain")
    assert succeed(changed) == "", "the first commands leave files that git does not ignore"
    assert sorted(path.name for path in machine.home.iterdir() if path.name != "megabuild") == [".cache"]


@pytest.mark.parametrize("machine", [SUITE], indirect=True)  # nvcc refuses forky's g++: test_forky_root.py
def test_wheels_of_pypi_alone_are_enough_for_a_wheel_config(machine: BareRoot) -> None:
    said = succeed(machine.run("python3", "build-locally.py", "linux_64_cuda132_wheel", "--plan"))
    assert re.search(r"libtorch .* torch-2\.15\.0-", said)


@pytest.mark.long  # minutes
def test_unit_tests_pass_or_are_skipped_behind_broken_shims(machine: BareRoot) -> None:
    shims = machine.home / "shims"
    for name in SHIMS:
        program(shims / name, "exit 127")
    elsewhere = {"HOME": "/tmp/elsewhere", "PATH": f"{HOME}/shims:/usr/bin:/bin"}
    told = succeed(machine.run("scripts/test", "tests/unit", environment=elsewhere))
    assert re.search(r"\d+ passed", told)
