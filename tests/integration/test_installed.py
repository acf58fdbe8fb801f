"""The built distribution, installed away from any checkout: every command that promises to work there."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import wheels_world as world

from groundwork.machine import machine_platform

#: Nothing of these is loaded by commands that look at an environment of pip's.
HEAVY = ("megabuild", "rattler", "rattler_build", "pin_audit", "conda_wheels")


@dataclass(frozen=True)
class Installed:
    """An environment with the distribution, and an empty folder to work in."""

    environment: Path
    folder: Path

    def run(self, *words: str, code: int = 0, environ: dict[str, str] | None = None) -> str:
        """Run ``megabuild``; return standard output, and after a failure standard error, too."""
        outside = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        done = subprocess.run(
            [str(self.environment / "bin" / "megabuild"), *words],
            cwd=self.folder,
            env={
                **outside,
                "MEGABUILD_CACHE": str(self.folder / "cache"),
                "HOME": str(self.folder),
                **(environ or {}),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr if code else done.stdout


def _uv(*words: str) -> None:
    subprocess.run(["uv", *words, "--quiet"], check=True)


def _installed(wheel: str, folder: Path) -> Installed:
    environment, empty = folder / "environment", folder / "empty"
    empty.mkdir()
    _uv("venv", "--python", sys.executable, str(environment))
    _uv("pip", "install", "--python", str(environment), wheel)
    return Installed(environment, empty)


@pytest.fixture(scope="module")
def light(built_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The distribution as ``pip install`` leaves it."""
    return _installed(str(built_wheel), tmp_path_factory.mktemp("light"))


@pytest.fixture(scope="module")
def full(built_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The distribution with its extra for conda."""
    return _installed(f"{built_wheel}[conda]", tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run built elsewhere."""
    if machine_platform() != "linux-64":
        pytest.skip("packages of linux-64")
    return world.make(tmp_path_factory.mktemp("world"))


def test_it_is_light_and_tools_for_gpu_code_load_nothing_of_the_driver(light: Installed) -> None:
    site = next(light.environment.glob("lib/python3*/site-packages"))
    there = {path.name for path in site.iterdir()}
    assert "gpu_tools" in there
    assert not there & {"rattler", "rattler_build"}
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 55_000_000, (
        "and uv's program"
    )
    program = (
        "import importlib, pkgutil, sys, gpu_tools\n"
        "for one in pkgutil.walk_packages(gpu_tools.__path__, 'gpu_tools.'): importlib.import_module(one.name)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    python = light.environment / "bin" / "python"
    done = subprocess.run([str(python), "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_environment_is_measured_slimmed_and_put_back(light: Installed, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    _uv("venv", "--python", sys.executable, str(environment))
    _uv("pip", "install", "--python", str(environment), "zstandard")

    def sizes() -> dict[Path, int]:
        return {path: path.stat().st_size for path in environment.glob("lib/**/*.so")}

    before = sizes()
    measured = json.loads(light.run("sizes", str(environment), "--json"))
    assert "zstandard" in {package["name"] for package in measured["packages"]}
    assert json.loads(light.run("slim", str(environment), "--json"))["state"] == "planned"
    assert sizes() == before
    light.run("slim", str(environment), "--apply")
    assert sum(sizes().values()) < sum(before.values())
    light.run("slim", str(environment), "--undo")
    assert sizes() == before


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["verify-gpu", "ENVIRONMENT"], 14, "torch cannot be imported"),
        (["install-pyg", "--plan", "--python", "ENVIRONMENT"], 4, "PyTorch"),
        (["build", "linux_64_cpu"], 4, "build-locally.py"),
        (["configs"], 4, "clone the repository"),
        (["wheels", world.CONFIG], 4, "megabuild[conda]"),
    ],
)
def test_what_cannot_be_done_here_is_said(light: Installed, words: list[str], code: int, text: str) -> None:
    assert text in light.run(
        *(word.replace("ENVIRONMENT", str(light.environment)) for word in words), code=code
    )


def test_the_command_that_is_named_installs_the_extra(light: Installed) -> None:
    said = light.run("audit", code=4)
    command = said.partition("hint: run: ")[2].strip()
    assert shlex.split(command)[:4] == [str(light.environment / "bin/python"), "-m", "pip", "install"]
    subprocess.run([*shlex.split(command), "--dry-run", "--quiet"], check=True)


def test_wheels_and_an_environment_are_made_of_a_channel(
    full: Installed, light: Installed, output: Path, tmp_path: Path
) -> None:
    made = json.loads(full.run("wheels", world.CONFIG, "--output", str(output), "--json"))
    torch = next(one["file"] for one in made["wheels"] if one["project"] == "torch")
    assert json.loads(light.run("verify", torch, "--json"))["subjects"][0]["ok"]
    words = ["libtorch", "--from", world.CONFIG, "--output", str(output)]
    # one of its packages asks for a newer glibc than there is
    full.run("env", "create", str(tmp_path / "e"), *words, environ={"CONDA_OVERRIDE_GLIBC": "2.90"})
    assert list((tmp_path / "e" / "lib").glob("libtorch*"))


def test_the_python_swap_is_a_program_of_its_own(light: Installed) -> None:
    program = light.environment / "bin" / "cmake-python-swap"
    done = subprocess.run([str(program), "--help"], capture_output=True, text=True, check=True)
    assert "restore" in done.stdout
