"""`megabuild verify` says what it was asked, or that it cannot: packages, wheels and environments really compiled."""

from __future__ import annotations

import _ctypes
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch_model
from wheel_files import make_wheel

from command_line.main import megabuild
from command_line.run_command import Invocation, outcome

NAME, STEM = "torch_spline_conv", "torch_spline_conv-1.2.2"
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
WRONG, UNKNOWN = 14, 19
Ask = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("torch")
    torch_model.make_torch(site)
    return site / "torch"


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory, torch: Path) -> dict[str, dict[str, bytes]]:
    """The files of a build for the CPU, and of one with code for 12.0."""
    work = tmp_path_factory.mktemp("libraries")
    return {
        "cpu": torch_model.libraries(NAME, work / "cpu", torch, (), cuda=False),
        "cuda": torch_model.libraries(NAME, work / "cuda", torch, ("12.0",)),
    }


def wheel(folder: Path, files: dict[str, bytes], local: str = "") -> Path:
    return make_wheel(folder, f"{STEM}{local}-{TAG}-{TAG}-linux_x86_64.whl", files)


def package(folder: Path, files: dict[str, bytes]) -> Path:
    """A conda package for the CPU."""
    depends = ["pytorch 2.13.0 cpu_generic_py311_h1_0", "python_abi 3.11.* *_cp311"]
    index = {"name": "pytorch_spline_conv", "build": "cpu_generic_py311_h1_0", "depends": depends}
    for path, content in {
        **{f"lib/python3.11/site-packages/{path}": content for path, content in files.items()},
        "info/index.json": json.dumps(index).encode(),
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    with tarfile.open(folder / "pytorch_spline_conv-1.2.2-cpu_0.tar.bz2", "w:bz2") as archive:
        archive.add(folder / "lib", "lib")
        archive.add(folder / "info", "info")
    return folder / "pytorch_spline_conv-1.2.2-cpu_0.tar.bz2"


def environment(folder: Path, files: dict[str, bytes], cuda: str | None) -> Path:
    site = folder / SITE
    torch_model.make_torch(site, cuda)
    for path, content in files.items():
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_bytes(content)
    return folder


@pytest.fixture
def ask(invocation: Invocation, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run `megabuild verify`; returns exit code and what was printed."""

    def asked(*words: object) -> tuple[int, str]:
        arguments = ["verify", *map(str, words)]
        code = outcome(lambda: megabuild.main(arguments, standalone_mode=False, obj=invocation), invocation)
        return code, " ".join(capsys.readouterr().out.split())

    return asked


@pytest.mark.parametrize("arch", ["12.0", "sm_120", "120", "12.0+PTX"])
@pytest.mark.parametrize("kind", ["wheel", "package", "environment"])
def test_a_build_for_the_cpu_is_none_for_an_architecture(
    kind: str, arch: str, tmp_path: Path, builds: dict[str, dict[str, bytes]], ask: Ask
) -> None:
    files = builds["cpu"]
    subject = {
        "wheel": lambda: wheel(tmp_path, files, "+pt213cpu"),
        "package": lambda: package(tmp_path, files),
        "environment": lambda: environment(tmp_path, files, None),
    }[kind]()
    assert ask(subject)[0] == 0
    code, said = ask(subject, "--arch-list", arch)
    assert code == WRONG
    assert "compiled without CUDA" in said
    assert ("torch was built without CUDA" in said) == (kind == "environment")


@pytest.mark.parametrize("arch", ["12.0", "sm_120", "120"])
def test_an_architecture_is_understood_however_it_is_written(
    arch: str, tmp_path: Path, builds: dict[str, dict[str, bytes]], ask: Ask
) -> None:
    subject = wheel(tmp_path, builds["cuda"], "+pt213cu130")
    assert ask(subject, "--arch-list", arch)[0] == 0
    assert ask(subject, "--arch-list", f"{arch};sm_90")[0] == WRONG
    assert ask(subject, "--arch-list", arch, "--accelerator", "cpu")[0] == 2


@pytest.mark.parametrize(
    "question",
    [("--accelerator", "cuda130"), ("--accelerator", "cpu"), ("--arch-list", "9.0")],
)
def test_a_module_that_nothing_is_known_of_is_unknown(
    question: tuple[str, str], tmp_path: Path, builds: dict[str, dict[str, bytes]], ask: Ask
) -> None:
    name = "other-1.0-py3-none-linux_x86_64.whl"
    silent = make_wheel(tmp_path / "silent", name, {"other/_c.so": Path(_ctypes.__file__).read_bytes()})
    assert ask(silent)[0] == 0
    assert ask(silent, *question)[0] == UNKNOWN
    cuda = make_wheel(tmp_path / "cuda", name, {"other/_c.so": builds["cuda"][f"{NAME}/_basis_cuda.so"]})
    told = {"cuda130": 0, "cpu": WRONG, "9.0": WRONG}
    assert ask(cuda, *question)[0] == told[question[1]]


@pytest.mark.parametrize(
    ("cuda", "question", "said"),
    [
        (None, ("--accelerator", "cuda130"), "torch was built without CUDA"),
        ("13.0", ("--accelerator", "cpu"), "torch was built with CUDA"),
        ("13.0", ("--accelerator", "cuda132"), "torch was built for CUDA 13.0, not for CUDA 13.2"),
    ],
)
def test_an_environments_torch_is_asked_too(
    cuda: str | None, question: tuple[str, str], said: str, tmp_path: Path, ask: Ask
) -> None:
    subject = environment(tmp_path, {}, cuda)
    assert ask(subject)[0] in (0, WRONG)  # the model of torch with CUDA has no device code
    code, text = ask(subject, *question)
    assert code == WRONG
    assert said in text
