"""The first hour on a fresh machine: README's commands with Debian's own Python, an ordinary user and PyPI alone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import bare_root
import pytest
from bare_root import BareRoot

#: Of each kind one file that takes a moment: docs, the swap, a command line, a compiler.
UNIT_TESTS = ("test_docs_commands", "test_python_swap", "test_cli_exits", "test_recipe_scripts")


@pytest.fixture(scope="module")
def machine(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> BareRoot:
    return bare_root.make(repository, tmp_path_factory.mktemp("home"))


def readme(repository: Path, *words: str) -> list[str]:
    """The first command of README with some words in it."""
    text = (repository / "README.md").read_text().replace("\\\n", " ")
    (command, *_) = (
        line
        for block in re.findall(r"^```(?:bash|console)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if all(word in line for word in words)
    )
    return ["sh", "-c", command.removeprefix("$ ")]


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout + done.stderr


def test_the_first_commands_of_readme_work(machine: BareRoot, repository: Path) -> None:
    succeed(machine.run(*readme(repository, "build-locally.py", "linux_64_cpu ", "--rehearse")))
    succeed(machine.run(*readme(repository, "env create", "linux_64_cpu-rehearsal")))
    imported = succeed(machine.run(*readme(repository, "env/bin/python", "import torch")))
    assert re.search(r"^2\.\d+\.\d+", imported, re.MULTILINE)
    changed = machine.run("git", "status", "--porcelain")
    assert succeed(changed) == "", "the first commands leave files that git does not ignore"
    assert sorted(path.name for path in machine.home.iterdir() if path.name != "megabuild") == [".cache"]


def test_wheels_of_pypi_alone_are_enough_for_a_wheel_config(machine: BareRoot) -> None:
    said = succeed(machine.run("python3", "build-locally.py", "linux_64_cuda132_wheel", "--plan"))
    assert "libtorch is made from torch-2.15.0-" in said


@pytest.mark.long  # makes another environment
def test_unit_tests_run(machine: BareRoot) -> None:
    files = [f"tests/unit/{name}.py" for name in UNIT_TESTS]
    said = succeed(machine.run("scripts/test", "-q", *files))
    assert re.search(r"^\d+ passed", said, re.MULTILINE)
    assert "failed" not in said
