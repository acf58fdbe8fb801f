"""Wheels of a tiny compiled PyTorch, made by the command, installed by pip and uv from their index, and used.

That PyTorch is four small libraries (see ``wheels_world``).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
import wheels_world as world
from import_path import packages_path

from conda_wheels import simple_index
from groundwork.machine import machine_platform
from groundwork.wheel_file import why_broken

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="packages of linux-64")
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = (
    "import torch, torch_spline_conv as s; print(torch.__version__, torch.answer, torch.manager, s.answer)"
)


def command(output: Path) -> list[str]:
    return [sys.executable, "-m", "megabuild", "wheels", world.CONFIG, "-o", str(output)]


def environ(output: Path, date: int = world.DATE) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": packages_path(ROOT),
        "MEGABUILD_CACHE": str(output.parent / "cache"),
        "SOURCE_DATE_EPOCH": str(date),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run built, with its wheels; what they were made of is out of reach."""
    folder = world.make(tmp_path_factory.mktemp("world"))
    done = subprocess.run(command(folder), env=environ(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_pip_installs_from_the_index(output: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    index = (output / "wheels" / world.CONFIG / simple_index.SIMPLE).as_uri()
    words = [str(python), "-m", "pip", "install", "--index-url", index, "torch_spline_conv"]
    done = subprocess.run(words, env=environ(output), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torch-2.6.0+cpu" in done.stdout, "what the extension requires comes, too"
    said = subprocess.run([python, "-c", PROGRAM], capture_output=True, text=True)
    assert said.stdout == "2.6.0+cpu 21 3 42\n", said.stderr


def test_a_killed_run_leaves_an_index_that_is_whole(output: Path) -> None:
    folder = output / "wheels" / world.CONFIG
    took = 1.0
    for number in range(5):
        began = time.monotonic()
        # another date: every wheel is made anew
        process = subprocess.Popen(
            command(output), env=environ(output, world.DATE + 1000 * (number + 1)), stdout=subprocess.DEVNULL
        )
        if number:
            time.sleep(took * number / 4.2)
            process.kill()
        process.wait()
        took = took if number else time.monotonic() - began
        wheels = simple_index.read(folder)
        assert {one.project for one in wheels} == {"torch", "torch_spline_conv"}
        for one in wheels:
            assert why_broken(folder / simple_index.SIMPLE / one.place) == ""
            page = (folder / simple_index.SIMPLE / one.place).with_name("index.html").read_text()
            assert one.sha256 in page
    done = subprocess.run(command(output), env=environ(output), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    left = {path.name for path in folder.iterdir()} - {simple_index.SIMPLE, ".lock"}
    assert len(left) == 1, left
