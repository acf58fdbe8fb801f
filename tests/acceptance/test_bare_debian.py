"""The first hour on a fresh machine: README's commands with Debian's own Python, an ordinary user and PyPI alone.

On Debian forky, Python 3.14 and GCC 16, which nvcc refuses: a CUDA config and install-pyg, without and with GCC 15.
These tests download 6 GB, need 25 GB of disk and compile CUDA for minutes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import bare_root
import pytest
from bare_root import HOME, SUITE, BareRoot, command_of, succeed

FORKY = "forky"
#: One extension for one architecture, of the commands of the pages.
EXTENSION = "spline_conv"
#: As pyenv leaves them for programs of Pythons that are not chosen.
SHIMS = ("cmake", "ninja", "python3.10", "python3.11", "python3.12", "python3.13")


@pytest.fixture(scope="module", params=[SUITE, pytest.param(FORKY, marks=pytest.mark.long)])
def machine(
    request: pytest.FixtureRequest, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> BareRoot:
    return bare_root.make(repository, tmp_path_factory.mktemp("home"), suite=request.param)


@pytest.mark.long  # minutes: nothing is cached
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


@pytest.mark.long  # minutes
def test_unit_tests_pass_or_are_skipped_behind_broken_shims(machine: BareRoot) -> None:
    shims = machine.home / "shims"
    for name in SHIMS:
        shims.mkdir(exist_ok=True)
        (shims / name).write_text("#!/bin/sh\nexit 127\n")
        (shims / name).chmod(0o755)
    elsewhere = {"HOME": "/tmp/elsewhere", "PATH": f"{HOME}/shims:/usr/bin:/bin"}
    told = succeed(machine.run("scripts/test", "tests/unit", environment=elsewhere))
    assert re.search(r"\d+ passed", told)


@pytest.fixture
def newcomer(repository: Path, tmp_path: Path) -> BareRoot:
    """Forky with README's packages."""
    return bare_root.make(repository, tmp_path, suite=FORKY)


def with_gcc_15(machine: BareRoot) -> BareRoot:
    """The same user after the hint's command."""
    return replace(machine, root=bare_root.make_root(FORKY, ["g++-15"]))


def assert_gcc_is_named(refused: subprocess.CompletedProcess[str]) -> None:
    assert refused.returncode == 4
    assert "GCC 16" in refused.stdout + refused.stderr
    assert "apt-get install g++-15" in refused.stdout + refused.stderr


@pytest.mark.long
def test_a_cuda_config_on_forky_names_the_gcc_it_needs_then_compiles_with_it(
    newcomer: BareRoot, repository: Path
) -> None:
    *shell, command = command_of(repository / "README.md", "linux_64_cuda132_wheel", f"-e {EXTENSION}")
    build = [*shell, f"{command} --arch-list 12.0"]
    for more in (" --plan", ""):
        refused = newcomer.run(*shell, build[-1] + more)
        assert_gcc_is_named(refused)
    assert not list(newcomer.home.rglob("torch-*.whl")), "gigabytes are downloaded before"

    succeed(with_gcc_15(newcomer).run(*build, timeout=7200))
    output = newcomer.home / "megabuild" / "output"
    (package,) = output.glob(f"packages/*/linux-64/pytorch_{EXTENSION}-*.conda")
    assert "py314" in package.name
    shutil.rmtree(output)


@pytest.mark.long
def test_install_pyg_on_forky_names_the_gcc_it_needs_then_compiles_with_it(
    newcomer: BareRoot, repository: Path
) -> None:
    page = repository / "docs" / "gpu-owners.md"
    for words in (("-m venv venv",), ("install torch",), ("cuda-toolkit",)):
        succeed(newcomer.run(*command_of(page, *words), timeout=3600, environment={"PIP_NO_CACHE_DIR": "1"}))
    *shell, command = command_of(page, "install-pyg", "--plan")
    plan = command.replace("torch_scatter", f"torch_{EXTENSION}")
    refused = newcomer.run(*shell, plan)
    assert_gcc_is_named(refused)

    owner = with_gcc_15(newcomer)
    succeed(owner.run(*shell, plan))
    succeed(owner.run(*shell, plan.removesuffix(" --plan"), timeout=7200))
    succeed(owner.run(*command_of(page, "megabuild verify venv", "--arch-list 12.0")))
    shutil.rmtree(newcomer.home / "megabuild" / "venv")
