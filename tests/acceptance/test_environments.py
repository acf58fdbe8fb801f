"""slim, sizes, verify and verify-gpu on a virtual environment in the user's home, from a checkout."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pages import documented
from product import BASE_PYTHON, Place


@pytest.fixture(scope="module")
def owner(checkout: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The shared checkout and a home of this file's own, with ``~/venv`` and a copy of it, ``~/kept``."""
    place = replace(checkout, home=tmp_path_factory.mktemp("home"))
    make = f"{BASE_PYTHON} -m venv --without-pip ~/venv"  # a pip takes four CPU seconds
    pip = f"{BASE_PYTHON} -m pip --disable-pip-version-check --python ~/venv"
    place.run(f"{make} && {pip} install -q zstandard msgpack").succeeded()
    shutil.copytree(place.home / "venv", place.home / "kept", symlinks=True)
    return place


@pytest.fixture
def venv(owner: Place) -> Path:
    """``~/venv``: a package with compiled modules, tests and documents; no PyTorch."""
    environment = owner.home / "venv"
    shutil.rmtree(environment)
    shutil.copytree(owner.home / "kept", environment, symlinks=True)
    return environment


def content(environment: Path) -> dict[str, int]:
    """Return the size of each file outside byte code, which Python may write again."""
    return {
        str(path): path.stat().st_size
        for path in environment.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_slim_plans_applies_and_restores(owner: Place, venv: Path) -> None:
    before = content(venv)
    owner.run(documented("python3 scripts/megabuild slim ~/venv --arch-list 12.0")).succeeded()
    assert content(venv) == before, "a plan changes nothing"
    for apply in (
        documented(
            "python3 scripts/megabuild slim ~/venv --arch-list 12.0 --keep compile-cpu,extensions --apply"
        ),
        documented(
            "python3 scripts/megabuild slim ~/venv --arch-list 12.0 --keep compile,extensions --apply"
        ),
    ):
        owner.run(apply).succeeded()
        smaller = sum(size for path, size in content(venv).items() if ".megabuild-slim" not in path)
        assert smaller < sum(before.values())
        owner.run(documented("python3 scripts/megabuild slim ~/venv --undo")).succeeded()
        assert content(venv) == before


def test_forget_makes_slim_final(owner: Place, venv: Path) -> None:
    owner.run("python3 scripts/megabuild slim ~/venv --arch-list 12.0 --apply").succeeded()
    owner.run(documented("python3 scripts/megabuild slim ~/venv --forget")).succeeded()
    assert not (venv / ".megabuild-slim").exists()


def test_sizes_and_verify_read_an_environment(owner: Place, venv: Path) -> None:
    assert venv.is_dir()
    assert "zstandard" in owner.run(documented("python3 scripts/megabuild sizes ~/venv")).succeeded()
    verified = owner.run(documented("python3 scripts/megabuild verify ~/venv"))
    assert "nothing to verify" in verified.ended_with(14)


def test_tools_for_a_gpu_say_that_there_is_none(owner: Place, venv: Path) -> None:
    assert venv.is_dir()
    native = owner.run(documented("python3 scripts/megabuild slim ~/venv --arch-list native"))
    native.ended_with(native.exit_code)
    assert native.exit_code in (0, 19)
    checked = owner.run(documented("python3 scripts/megabuild verify ~/venv --arch-list native"))
    checked.ended_with(checked.exit_code)
    assert checked.exit_code in (14, 19)
    gpu = owner.run(documented("python3 scripts/megabuild verify-gpu ~/venv")).ended_with(14)
    assert "torch cannot be imported" in gpu


def test_a_missing_file_is_named(checkout: Place) -> None:
    for command in (
        documented("python3 scripts/megabuild sizes torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl"),
        documented(
            "python3 scripts/megabuild sizes output/packages/linux_64_cuda132_wheel/linux-64/libtorch-*.conda"
        ),
        documented(
            "python3 scripts/megabuild slim torch_scatter-2.1.2-*.whl --arch-list 9.0 --output wheels"
        ),
        documented(
            "python3 scripts/megabuild slim torch-2.15.0-cp312-cp312-manylinux_2_28_x86_64.whl --arch-list 9.0 --output wheels"
        ),
        documented(
            "python3 scripts/megabuild verify torch_sparse-0.6.18-cp311-cp311-linux_x86_64.whl --beside ~/venv"
        ),
        documented(
            'python3 scripts/megabuild verify output/packages/linux_64_cuda132_wheel/linux-64/pytorch_scatter-*.conda --arch-list "9.0;12.0"'
        ),
        documented("python3 scripts/megabuild sizes torch-2.13.0-*.whl --all"),
        documented("python3 scripts/megabuild verify torch_scatter-2.1.2-*.whl --beside ~/venv"),
    ):
        text = checkout.run(command).ended_with(2)
        assert "not found" in text or "does not exist" in text
