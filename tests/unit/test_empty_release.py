"""Releases without a library, as upstream wants to retire torch_scatter and others: refused by name, everywhere."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import call
from small_files import write
from tiny import make_package
from wheel_files import make_page, make_wheel

import verify_package
from command_line.run_command import Invocation
from groundwork.errors import IntegrityError
from pyg_extensions.fetch_sources import unpack_sources
from pyg_extensions.find_wheel import Choice, WheelRequirements, check_package, find_wheel
from pyg_extensions.pyg_index import PygIndex, WheelTarget
from pyg_extensions.table import ExtensionRelease, find

WARNS = b"import warnings\nwarnings.warn('torch-scatter has moved to pyg-lib')\n"
NOTHING = "no library in it: an empty release; upstream replaces torch_scatter by pyg-lib"
TARGET = WheelTarget(python="3.12", torch_version="2.13.0", cuda_version=None, platform="linux-64")
WANTED = WheelRequirements(extension=find("scatter"), target=TARGET)


def wheel(folder: Path, tag: str = "py3-none-any") -> Path:
    return make_wheel(folder, f"torch_scatter-2.2.0-{tag}.whl", {"torch_scatter/__init__.py": WARNS})


def package(folder: Path) -> Path:
    inside = {"lib/python3.12/site-packages/torch_scatter/__init__.py": WARNS}
    return make_package(folder, "pytorch_scatter", "2.2.0", "cpu_mkl_py312_h1_100", inside)


def environment(folder: Path) -> Path:
    """An environment with a torch, into which pip installed it."""
    site = folder / "lib/python3.12/site-packages"
    for name, text in {
        "torch/version.py": "__version__ = '2.13.0+cpu'\ncuda = None\n",
        "torch_scatter/__init__.py": WARNS.decode(),
        "torch_scatter-2.2.0.dist-info/METADATA": "Name: torch_scatter\nVersion: 2.2.0\n",
    }.items():
        write(site / name, text)
    return folder


@pytest.mark.parametrize("made", [wheel, package, environment])
def test_verify_refuses_it_by_name_with_what_to_do(
    made: Callable[[Path], Path], tmp_path: Path, invocation: Invocation
) -> None:
    done = call(invocation, "verify", str(made(tmp_path)))
    assert done.exit_code == 14
    said = " ".join(done.stdout.split())
    assert f"torch_scatter: {NOTHING}" in said
    assert said.count("pyg-lib") == 2 * said.count(NOTHING), "a remedy for each"


def chosen(folder: Path) -> Choice:
    index = folder / "index"
    make_page(index, "2.13.0", "cpu", [path.name for path in sorted(index.glob("*.whl"))])
    return find_wheel(
        WANTED, "", index=PygIndex(str(index)), cache=folder / "cache", report=lambda text: None
    )  # fmt: skip


def test_an_index_that_offers_nothing_else_is_a_reason_to_compile(tmp_path: Path) -> None:
    wheel(tmp_path / "index")
    assert chosen(tmp_path).wheel is None
    assert chosen(tmp_path).reason.endswith(f"(2.2.0) has {NOTHING}")


def test_a_source_archive_with_nothing_to_compile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    release = ExtensionRelease(name="torch_scatter", version="2.2.0")
    with tarfile.open(tmp_path / release.archive, "w:gz") as archive:
        for name in ("PKG-INFO", "setup.py", "torch_scatter/__init__.py"):
            archive.addfile(tarfile.TarInfo(f"torch_scatter-2.2.0/{name}"), io.BytesIO())
    with pytest.raises(IntegrityError, match=f"2.2.0.tar.gz: {NOTHING}") as caught:
        unpack_sources(
            WANTED.extension, release, tmp_path / "work", folder=tmp_path, cache=tmp_path / "cache"
        )
    assert "pyg-lib" in caught.value.remedy


def test_the_recipe_s_own_check_and_publishing_refuse_it(tmp_path: Path) -> None:
    site = environment(tmp_path) / "lib/python3.12/site-packages"
    (fault,) = verify_package.check(site, "torch_scatter", "cpu", (), "3.12")
    assert (fault.startswith(f"torch_scatter: {NOTHING}\n"), fault.count("pyg-lib")) == (True, 2)
    with pytest.raises(IntegrityError, match=f"torch_scatter: {NOTHING}"):
        check_package(package(tmp_path), accelerator="cpu", archs=(), python="3.12", torch_version="2.13.0")
