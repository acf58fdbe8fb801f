"""Debian forky: Python 3.14 and GCC 16, which nvcc refuses. A CUDA config and install-pyg, without and with GCC 15.

Downloads 6 GB, needs 25 GB of disk and compiles CUDA for minutes.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import bare_root
import pytest
from bare_root import BareRoot, command_of, succeed

pytestmark = pytest.mark.long
SUITE = "forky"
#: One extension for one architecture, of the commands of the pages.
EXTENSION = "spline_conv"


@pytest.fixture
def newcomer(repository: Path, tmp_path: Path) -> BareRoot:
    """Forky with README's packages."""
    return bare_root.make(repository, tmp_path, suite=SUITE)


def with_gcc_15(machine: BareRoot) -> BareRoot:
    """The same user after the hint's command."""
    return replace(machine, root=bare_root.make_root(SUITE, ["g++-15"]))


def test_a_cuda_config_names_the_gcc_it_needs_then_compiles_with_it(
    newcomer: BareRoot, repository: Path
) -> None:
    *shell, command = command_of(repository / "README.md", "linux_64_cuda132_wheel", f"-e {EXTENSION}")
    build = [*shell, f"{command} --arch-list 12.0"]
    for more in (" --plan", ""):
        refused = newcomer.run(*shell, build[-1] + more)
        assert refused.returncode == 4
        assert "GCC 16" in refused.stderr
        assert "apt-get install g++-15" in refused.stderr
    assert not list(newcomer.home.rglob("torch-*.whl")), "gigabytes are downloaded before"

    succeed(with_gcc_15(newcomer).run(*build, timeout=7200))
    output = newcomer.home / "megabuild" / "output"
    (package,) = output.glob(f"packages/*/linux-64/pytorch_{EXTENSION}-*.conda")
    assert "py314" in package.name
    shutil.rmtree(output)


def test_install_pyg_names_the_gcc_it_needs_then_compiles_with_it(
    newcomer: BareRoot, repository: Path
) -> None:
    page = repository / "docs" / "gpu-owners.md"
    for words in (("-m venv venv",), ("install torch",), ("cuda-toolkit",)):
        succeed(newcomer.run(*command_of(page, *words), timeout=3600, environment={"PIP_NO_CACHE_DIR": "1"}))
    *shell, command = command_of(page, "install-pyg", "--plan")
    plan = command.replace("torch_scatter", f"torch_{EXTENSION}")
    refused = newcomer.run(*shell, plan)
    assert refused.returncode == 4
    assert "GCC 16" in refused.stdout + refused.stderr
    assert "apt-get install g++-15" in refused.stdout + refused.stderr

    owner = with_gcc_15(newcomer)
    succeed(owner.run(*shell, plan))
    succeed(owner.run(*shell, plan.removesuffix(" --plan"), timeout=7200))
    succeed(owner.run(*command_of(page, "megabuild verify venv", "--arch-list 12.0")))
    shutil.rmtree(newcomer.home / "megabuild" / "venv")
