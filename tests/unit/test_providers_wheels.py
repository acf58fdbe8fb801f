"""Wheels: unpacking them, and the dependencies their packages get."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from groundwork.errors import IntegrityError
from megabuild.providers import catalogue
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.pypi import unpack, wheel_to_conda
from megabuild.providers.pypi.lock import Lock, Wheel


def _wheel_file(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment with the running Python."""
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").symlink_to(sys.executable)
    return tmp_path / "env"


def test_entry_points_and_scripts_start_the_python_beside_them(tmp_path: Path, prefix: Path) -> None:
    wheel = _wheel_file(
        tmp_path / "hello-1-py3-none-any.whl",
        {
            "hello.py": "class Greeter:\n    @staticmethod\n    def main():\n        print('hello')\n",
            "hello-1.dist-info/entry_points.txt": "[console_scripts]\nhello = hello:Greeter.main\n[other]\nx = y\n",
            "hello-1.data/scripts/plain": "#!python\nprint('plain')\n",
            "hello-1.data/data/share/hello.txt": "data",
        },
    )
    unpack.library(wheel, prefix, "site-packages")
    environment = {"PYTHONPATH": str(prefix / "site-packages"), "PATH": "/usr/bin:/bin"}
    for name in ("hello", "plain"):
        done = subprocess.run(
            [prefix / "bin" / name], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{name}\n"
    assert (prefix / "share" / "hello.txt").read_text() == "data"
    assert not list((prefix / "site-packages").glob("*.data"))


def test_a_tool_leaves_its_python_wrapper_behind(tmp_path: Path, prefix: Path) -> None:
    wheel = _wheel_file(
        tmp_path / "cmake-1-py3-none-linux_x86_64.whl",
        {
            "cmake/__init__.py": "",
            "cmake/data/bin/cmake": "#!/bin/sh\necho 1\n",
            "cmake/data/share/x": "",
            "cmake/data/doc/y": "",
        },
    )
    unpack.tool(wheel, prefix)
    assert (
        subprocess.run([prefix / "bin" / "cmake"], capture_output=True, text=True, check=True).stdout == "1\n"
    )
    assert sorted(path.name for path in prefix.iterdir()) == ["bin", "share"]


@pytest.mark.parametrize("entry_point", [True, False])
@pytest.mark.parametrize("name", ["/tmp/evil", "../evil", "a/b", ".."])
def test_nothing_is_written_outside_the_environment(tmp_path: Path, name: str, entry_point: bool) -> None:
    name = name.replace("/tmp", str(tmp_path))
    content = {"evil-1.dist-info/entry_points.txt": f"[console_scripts]\n{name} = evil:main\n"}
    if not entry_point:
        if name == "a/b":
            return  # a member's usual path
        content = {name: ""}
    wheel = _wheel_file(tmp_path / "evil-1-py3-none-any.whl", content)
    with pytest.raises(IntegrityError, match="outside"):
        unpack.library(wheel, tmp_path / "env", "site-packages")
    assert not list(tmp_path.rglob("evil")) + list(tmp_path.rglob("b"))


def _wheel(name: str, tag: str = "py3-none-any", *requires: str) -> Wheel:
    return Wheel(
        name=name,
        version="1.0",
        file_name=f"{name}-1.0-{tag}.whl",
        sha256=f"{name}{tag}",
        requires=requires,
        requires_python=">=3.10",
    )


def _lock(python: str, *wheels: Wheel) -> Lock:
    return Lock(
        python=python,
        environment={"python_version": python, "python_full_version": f"{python}.0"},
        wheels=wheels,
    )


def _convert(*locks: Lock) -> dict[tuple[str, str], tuple[str, ...]]:
    files = {wheel.sha256: Path(wheel.file_name) for one in locks for wheel in one.wheels}
    made = wheel_to_conda.packages(locks, files, catalogue.load(), "linux-64")
    return {(one.name, one.subdir + one.build): one.depends for one in made}


def test_a_pure_wheel_becomes_one_package_for_all_pythons() -> None:
    wheel = _wheel("jinja2", "py3-none-any", "MarkupSafe>=2.0", "Babel; extra == 'i18n'")
    assert _convert(_lock("3.10", wheel), _lock("3.12", wheel)) == {
        ("jinja2", "noarchpyh{hash}_0"): ("markupsafe >=2.0", "python >=3.10")
    }


def test_dependencies_that_differ_by_python_make_a_package_for_each() -> None:
    wheel = _wheel("filelock", "py3-none-any", "typing-extensions>=4; python_version < '3.11'")
    made = _convert(_lock("3.10", wheel), _lock("3.12", wheel))
    assert made == {
        ("filelock", "linux-64py310h{hash}_0"): (
            "python 3.10.*",
            "python_abi 3.10.* *_cp310",
            "typing_extensions >=4",
        ),
        ("filelock", "linux-64py312h{hash}_0"): ("python 3.12.*", "python_abi 3.12.* *_cp312"),
    }


def test_native_wheels_are_tied_to_their_python_and_tools_to_none() -> None:
    native = _wheel("optree", "cp313-cp313t-manylinux_2_17_x86_64")
    tool = _wheel("ninja", "py3-none-manylinux_2_17_x86_64")
    assert _convert(_lock("3.13t", native, tool)) == {
        ("optree", "linux-64py313th{hash}_0"): ("python 3.13.*", "python_abi 3.13.* *_cp313t"),
        ("ninja", "linux-64h{hash}_0"): (),
    }


def test_a_project_asked_for_by_two_names_is_one_package_and_another_that_needs_it() -> None:
    table = catalogue.load().with_wheels(["setuptools_scm"])
    assert table.conda_name("setuptools-scm") == "setuptools_scm"
    package = LocalPackage(name="setuptools_scm", version="9.0", platform="linux-64")
    asked = ["setuptools_scm", "setuptools-scm", "numpy"]
    (other,) = wheel_to_conda.other_names([package], asked, table, "linux-64")
    assert (other.name, other.version, other.depends) == ("setuptools-scm", "9.0", ("setuptools_scm ==9.0",))
