"""Packages made from official PyTorch wheels, with the recipe's own tests: built, installed, and looked into.

Needs an index that pip knows with a wheel of the config's PyTorch; every Python of this machine that has a fitting one
is enough. Minutes of packing, so it runs on request.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from groundwork.errors import ProviderError
from megabuild.configs.config import load
from megabuild.providers.local.interpreters import find as find_interpreters
from megabuild.providers.wheel import torch_wheels as torch

CONFIG = "linux_64_cpu_wheel"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The published channel of one Python, built by the driver with its tests, and that Python."""
    folder = tmp_path_factory.mktemp("wheels")
    config = load(repository, CONFIG)
    try:
        found = torch.find(config, find_interpreters(lambda _: None), folder / "locks")
    except ProviderError as error:
        pytest.skip(error.message)
    python = list(found.locks)[-1]
    # not below pytest's own folder, whose path is too long for the engine
    output = tmp_path_factory.getbasetemp() / "o"
    command = [sys.executable, str(repository / "scripts/megabuild"), "build", CONFIG, "-p", python]
    subprocess.run([*command, "--pyg", "none", "-o", str(output)], check=True, timeout=3600)
    return output, python


def test_all_packages_are_built_and_passed_their_tests(built: tuple[Path, str]) -> None:
    output, python = built
    summary = json.loads((output / CONFIG / "run.json").read_text())
    assert summary["ok"]
    built_names = [(package["name"], package["status"]) for package in summary["packages"]]
    assert built_names == [("libtorch", "built"), ("pytorch", "built"), ("pytorch-cpu", "built")]
    packages = sorted(path.name for path in (output / "packages" / CONFIG / "linux-64").glob("*.conda"))
    assert [name for name in packages if f"cpu_wheel_py{python.replace('.', '')}_" in name]


def test_a_second_run_has_nothing_to_do(built: tuple[Path, str], repository: Path) -> None:
    output, python = built
    record = (output / CONFIG / "run.json").read_bytes()
    command = [sys.executable, str(repository / "scripts/megabuild"), "build", CONFIG, "-p", python]
    command += ["--pyg", "none", "-o", str(output)]
    done = subprocess.run(command, check=True, timeout=600, stdout=subprocess.PIPE, text=True)
    assert "nothing to build" in done.stdout
    assert done.stdout.count("= reused") == 3
    assert (output / CONFIG / "run.json").read_bytes() == record, "the record of the last build is lost"
