"""Packages made from official PyTorch wheels, with the recipe's own tests: built, installed, and looked into.

Needs an index that pip knows with a wheel of the config's PyTorch; every Python of this machine that has a fitting one
is enough. Minutes of packing, so it runs on request.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from groundwork.errors import ProviderError
from megabuild.configs.config import load
from megabuild.providers.local.interpreters import find as find_interpreters
from megabuild.providers.wheel import torch_wheels as torch

CONFIG = "linux_64_cpu_wheel"
pytestmark = pytest.mark.long


def test_packages_are_built_once_and_pass_their_tests(repository: Path, tmp_path: Path) -> None:
    config = load(repository, CONFIG)
    try:
        found = torch.find(config, find_interpreters(lambda _: None), tmp_path / "locks")
    except ProviderError as error:
        pytest.skip(error.message)
    python = list(found.locks)[-1]
    with tempfile.TemporaryDirectory() as folder:  # pytest's own has a path too long for the engine
        output = Path(folder)
        command = [sys.executable, str(repository / "scripts/megabuild"), "build", CONFIG, "-p", python]
        command += ["--pyg", "none", "-o", str(output)]
        subprocess.run(command, check=True, timeout=3600)
        record = (output / CONFIG / "run.json").read_bytes()
        summary = json.loads(record)
        assert summary["ok"]
        built = [(package["name"], package["status"]) for package in summary["packages"]]
        assert built == [("libtorch", "built"), ("pytorch", "built"), ("pytorch-cpu", "built")]
        assert list((output / "packages" / CONFIG).glob(f"*/*cpu_wheel_py{python.replace('.', '')}_*.conda"))
        done = subprocess.run(command, check=True, timeout=600, stdout=subprocess.PIPE, text=True)
        assert "nothing to build" in done.stdout
        assert done.stdout.count("= reused") == 3
        assert (output / CONFIG / "run.json").read_bytes() == record, "the record of the last build is lost"
