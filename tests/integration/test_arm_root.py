"""linux-aarch64 on any machine: a bare arm64 Debian root whose programs qemu runs, and PyPI. Hours (docs/arm.md)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import bare_root
import pytest
from bare_root import BareRoot, command_of, succeed

from groundwork.network.index import configured

pytestmark = pytest.mark.long
CONFIG = "linux_aarch64_cpu_wheel"
HOURS = 4 * 3600.0
PROJECT = """\
[tool.poetry]
package-mode = false
[tool.poetry.dependencies]
python = ">=3.13,<3.14"
torch_spline_conv = {{ path = "../megabuild/{wheel}" }}
numpy = "*"
[[tool.poetry.source]]
name = "simple"  # mirrors need not have the other API
url = "{index}/"
"""
PROGRAM = """\
import platform, torch, torch_spline_conv as s
basis, index = s.spline_basis(torch.rand(4, 2), torch.tensor([3, 3]), torch.tensor([1, 1], dtype=torch.uint8), 1)
assert torch.allclose(basis.sum(1), torch.ones(4)) and torch.allclose(torch.eye(3) @ torch.ones(3), torch.ones(3))
print(platform.machine(), torch.__version__)
"""
USED = "aarch64 2.10.0+cpu"


@pytest.fixture(scope="module")
def machine(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    with bare_root.emulated("aarch64"):
        yield bare_root.make(repository, tmp_path_factory.mktemp("home"), architecture="arm64")


@pytest.fixture(scope="module")
def wheel(machine: BareRoot) -> str:
    """The wheel of an extension for repacked wheels of PyTorch; its path in the clone."""
    succeed(run(machine, "python3 build-locally.py linux_aarch64_cpu_wheel -p 3.13 -e spline_conv"))
    succeed(run(machine, "python3 scripts/megabuild wheels linux_aarch64_cpu_wheel"))
    (made,) = (machine.home / "megabuild/output/wheels" / CONFIG / "simple").resolve().rglob("*.whl")
    return made.relative_to(machine.home / "megabuild").as_posix()


def run(machine: BareRoot, line: str) -> subprocess.CompletedProcess[str]:
    return machine.run("sh", "-euc", line, timeout=HOURS)


def test_cuda_is_planned_from_wheels_of_pypi(machine: BareRoot) -> None:
    said = succeed(run(machine, "python3 build-locally.py linux_aarch64_cuda132_wheel -e scatter --plan"))
    assert "libtorch is made from torch-2.15.0-" in said


def test_wheels_and_an_extension_are_used_in_an_environment_and_installed_by_pip(
    machine: BareRoot, wheel: str
) -> None:
    create = "python3 scripts/megabuild env create ./wheels-env pytorch_spline_conv --from"
    succeed(run(machine, f"{create} linux_aarch64_cpu_wheel"))
    used = machine.run("wheels-env/bin/python", "-c", PROGRAM)
    assert USED in succeed(used)
    assert wheel.endswith("_aarch64.whl")
    succeed(run(machine, f"python3 -m venv ~/pip && ~/pip/bin/pip install {wheel} numpy"))
    assert USED in succeed(run(machine, f"~/pip/bin/python -c '{PROGRAM}'"))


def test_poetry_installs_the_wheel_from_a_path(machine: BareRoot, wheel: str) -> None:
    succeed(run(machine, "mkdir ~/project; python3 -m venv ~/poetry && ~/poetry/bin/pip install poetry"))
    (machine.home / "project/pyproject.toml").write_text(
        PROJECT.format(wheel=wheel, index=configured().indexes[0])
    )
    certificates = "REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt"
    succeed(run(machine, f"cd ~/project && {certificates} ~/poetry/bin/poetry install"))
    assert USED in succeed(run(machine, f"cd ~/project && ~/poetry/bin/poetry run python -c '{PROGRAM}'"))


def test_the_first_commands_of_readme_work(machine: BareRoot, repository: Path) -> None:
    for words in (("--rehearse",), ("env create", "-rehearsal"), ("import torch",)):
        line = command_of(repository / "README.md", *words)[-1].replace("linux_64", "linux_aarch64")
        said = succeed(run(machine, line))
    assert "2.13.0" in said.splitlines()
