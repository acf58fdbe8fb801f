"""Packages that an x86-64 machine compiled for ARM, used in a bare arm64 Debian root, whose programs qemu runs.

Of the output folder that MEGABUILD_TEST_PACKAGES names, else of this repository's own. docs/arm.md has the command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bare_root
import pytest
from bare_root import BareRoot, succeed
from elftools.elf.elffile import ELFFile
from rattler.package_streaming import extract

from groundwork.network.index import configured
from groundwork.user_folders import cache_folder
from megabuild.store import published

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = Path(os.environ.get("MEGABUILD_TEST_PACKAGES") or ROOT / "output")
CONFIG = "linux_aarch64_cpu_debian"
PACKAGES = OUTPUT / "packages" / CONFIG
#: The Python of the root, Debian 13.
PYTHON = "3.13"
HOURS = 4 * 3600.0
COMPUTE = """\
import platform, torch
from torch.autograd import gradcheck
matrix = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
assert gradcheck(lambda m: torch.linalg.solve(m @ m.T + torch.eye(3, dtype=torch.float64), m).sum(), matrix)
a, b = torch.randn(50, 50), torch.randn(50)
assert torch.allclose(a @ torch.linalg.solve(a, b), b, atol=1e-2)
images, kernels = torch.randn(1, 2, 8, 8), torch.randn(3, 2, 3, 3)
unfolded = torch.nn.functional.unfold(images, 3)
by_hand = (kernels.reshape(3, -1) @ unfolded).reshape(1, 3, 6, 6)
assert torch.allclose(torch.nn.functional.conv2d(images, kernels), by_hand, atol=1e-4)
@torch.jit.script
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x
assert torch.equal(doubled(torch.ones(2)), torch.full((2,), 2.0))
print(platform.machine(), torch.__version__)
"""
SPLINE = """\
import torch, torch_spline_conv
basis, index = torch_spline_conv.spline_basis(
    torch.rand(4, 2), torch.tensor([3, 3]), torch.tensor([1, 1], dtype=torch.uint8), 1
)
assert torch.allclose(basis.sum(1), torch.ones(4))
print("a spline")
"""
EXTENSION = """\
import torch
from torch.utils.cpp_extension import load_inline
made = load_inline("tripled", "torch::Tensor tripled(torch::Tensor x) { return x * 3; }", functions=["tripled"])
assert torch.equal(made.tripled(torch.ones(2)), torch.full((2,), 3.0))
print("an extension")
"""
PROJECT = """\
[tool.poetry]
package-mode = false
[tool.poetry.dependencies]
python = ">=3.13,<3.14"
torch = {{ path = "../wheels/{wheel}" }}
numpy = "*"
[[tool.poetry.source]]
name = "simple"  # mirrors need not have the other API
url = "{index}/"
"""
USED = "aarch64 2.6.0"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PACKAGES.is_dir(), reason=f"{CONFIG} has not been built"),
]


@pytest.fixture(scope="module")
def machine(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareRoot]:
    """An arm64 root; in its home are the packages, the channel that they were made with, and wheels."""
    home = tmp_path_factory.mktemp("home")
    (beside,) = published.channels_beside(PACKAGES)[0]
    assert beside.folder is not None
    shutil.copytree(PACKAGES, home / "output" / "packages" / CONFIG)
    shutil.copytree(beside.folder, home / "channel")
    wheels = home / "wheels"
    wheels.mkdir()
    for wheel in _make_wheels():
        shutil.copy(wheel, wheels)
    with bare_root.emulated("aarch64"):
        yield bare_root.make(repository, home, more=["ninja-build"], architecture="arm64")


def _make_wheels() -> list[Path]:
    """Make the wheels on this machine, as a user does, and return them."""
    command = ["python3", "scripts/megabuild", "wheels", CONFIG, "torch", "-p", PYTHON, "-o", str(OUTPUT)]
    environment = {**os.environ, "MEGABUILD_CACHE": str(cache_folder(os.environ))}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return sorted(
        (OUTPUT / "wheels" / CONFIG / "simple").resolve().rglob(f"torch-*-cp{PYTHON.replace('.', '')}-*.whl")
    )


def run(machine: BareRoot, line: str) -> str:
    return succeed(machine.run("sh", "-euc", line, timeout=HOURS))


def test_every_library_is_for_arm(tmp_path: Path) -> None:
    seen = 0
    for path in PACKAGES.glob("linux-aarch64/*.conda"):
        folder = tmp_path / path.stem
        extract(path, folder)
        for file in folder.rglob("*"):
            if file.is_symlink() or not file.is_file():
                continue
            with file.open("rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    stream.seek(0)
                    assert ELFFile(stream).get_machine_arch() == "AArch64", file
                    seen += 1
    assert seen > 5


def test_an_environment_computes_and_compiles_an_extension(machine: BareRoot) -> None:
    create = (
        f"python3 scripts/megabuild env create ~/env pytorch ninja pip setuptools -p {PYTHON} --from {CONFIG}"
    )
    run(machine, f"{create} -o ~/output -c file://{bare_root.HOME}/channel")
    (machine.home / "compute.py").write_text(COMPUTE)
    (machine.home / "extension.py").write_text(EXTENSION)
    assert USED in run(machine, "~/env/bin/python ~/compute.py")
    assert "an extension" in run(machine, ". ~/env/activate && python ~/extension.py")


def test_pip_installs_the_wheel(machine: BareRoot) -> None:
    (machine.home / "compute.py").write_text(COMPUTE)
    run(machine, "python3 -m venv ~/pip && ~/pip/bin/pip install ~/wheels/torch-*.whl numpy")
    assert USED in run(machine, "~/pip/bin/python ~/compute.py")


def test_poetry_installs_the_wheel_from_a_path(machine: BareRoot) -> None:
    (machine.home / "compute.py").write_text(COMPUTE)
    (wheel,) = (machine.home / "wheels").glob("torch-*.whl")
    run(machine, "mkdir ~/project; python3 -m venv ~/poetry && ~/poetry/bin/pip install poetry")
    project = PROJECT.format(wheel=wheel.name, index=configured().indexes[0])
    (machine.home / "project/pyproject.toml").write_text(project)
    certificates = "REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt"
    run(machine, f"cd ~/project && {certificates} ~/poetry/bin/poetry install")
    assert USED in run(machine, "cd ~/project && ~/poetry/bin/poetry run python ~/compute.py")


def test_an_extension_that_was_cross_compiled_computes(machine: BareRoot) -> None:
    if not list(PACKAGES.glob("linux-aarch64/pytorch_spline_conv-*.conda")):
        pytest.skip("pytorch_spline_conv has not been built")
    create = f"python3 scripts/megabuild env create ~/spline pytorch_spline_conv -p {PYTHON} --from {CONFIG}"
    run(machine, f"{create} -o ~/output -c file://{bare_root.HOME}/channel")
    (machine.home / "spline.py").write_text(SPLINE)
    assert "a spline" in run(machine, "~/spline/bin/python ~/spline.py")
