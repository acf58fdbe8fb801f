"""Places for acceptance tests: a checkout, and the installed program without and with its extra."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pages import REPOSITORY, documented
from product import BASE_PYTHON, Place, add_program, clone_with_changes, make_place


def _shared(factory: pytest.TempPathFactory, name: str) -> Path:
    """Return a folder that all workers of a test session share."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "acceptance" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _made_once(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock; yield whether its content is still to be made."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not (folder / "complete").exists()
        (folder / "complete").touch()


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A checkout that was started once. Tests that build or edit in it take one of their own."""
    folder = _shared(tmp_path_factory, "checkout")
    place = make_place(folder)
    with _made_once(folder) as is_new:
        if is_new:
            clone_with_changes(REPOSITORY, folder / "megabuild")
            inside = replace(place, folder=folder / "megabuild")
            inside.run("python3 scripts/megabuild --help").succeeded()
            assert not list(place.home.glob(".*/*")), "the first start writes into the checkout only"
    return replace(place, folder=folder / "megabuild")


def link_environment(checkout: Place, clone: Path) -> None:
    """Give a clone the environment of the shared checkout, whose 300 MB it only reads, by hard links."""
    shutil.copytree(checkout.folder / ".venv", clone / ".venv", symlinks=True, copy_function=os.link)


@pytest.fixture
def own_checkout(checkout: Place, tmp_path: Path) -> Place:
    """A checkout for one test, with an environment that was set up before."""
    clone_with_changes(REPOSITORY, tmp_path / "megabuild")
    link_environment(checkout, tmp_path / "megabuild")
    return replace(make_place(tmp_path), folder=tmp_path / "megabuild")


@pytest.fixture(scope="session")
def pyg_user(checkout: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The shared checkout, and a home with ``~/venv``, which has no PyTorch. Tests leave it as it is."""
    folder = _shared(tmp_path_factory, "pyg-user")
    with _made_once(folder) as is_new:
        if is_new:
            at_home = replace(checkout, home=folder, folder=folder)
            at_home.run(documented("python3 -m venv venv")).succeeded()
    return replace(checkout, home=folder)


@pytest.fixture(scope="session")
def built_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that ``pip install DIR`` makes of a checkout; uv makes it in a tenth of the time."""
    folder = _shared(tmp_path_factory, "wheel")
    with _made_once(folder) as is_new:
        if is_new:
            clone_with_changes(REPOSITORY, folder / "megabuild")
            uv = str(Path(sys.executable).with_name("uv"))
            command = [uv, "build", "--quiet", "--wheel", "--out-dir", str(folder / "dist")]
            subprocess.run([*command, str(folder / "megabuild")], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def _installed(folder: Path, requirement: str) -> Place:
    """Install the program into an environment of its own, as pip does; its commands run in an empty folder."""
    place = make_place(folder)
    environment, empty = folder / "environment", folder / "empty"
    with _made_once(folder) as is_new:
        if is_new:
            # a pip of its own comes with the program, which requires one
            subprocess.run([str(BASE_PYTHON), "-m", "venv", "--without-pip", str(environment)], check=True)
            pip = [str(BASE_PYTHON), "-m", "pip", "--disable-pip-version-check", "--python", str(environment)]
            # Python compiles the modules that the tests import
            subprocess.run([*pip, "install", "-q", "--no-compile", requirement], check=True)
            add_program(place.programs, "megabuild", environment / "bin" / "megabuild")
            empty.mkdir()
    return replace(place, folder=empty)


@pytest.fixture(scope="session")
def plain_install(built_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """``pip install DIR``: without the extra."""
    return _installed(_shared(tmp_path_factory, "plain"), str(built_wheel))


@pytest.fixture(scope="session")
def conda_install(built_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """``pip install 'DIR[conda]'``."""
    return _installed(_shared(tmp_path_factory, "conda"), f"{built_wheel}[conda]")
