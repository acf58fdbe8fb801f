"""Wheels of what install-pyg compiled: their names and their folders."""

from __future__ import annotations

import zipfile
from pathlib import Path

from test_install_pyg import environment
from wheel_files import make_wheel

from groundwork.wheel_file import why_broken, with_local_version
from pyg_extensions.install.kept_wheels import keep_wheel, kept_wheel, wheel_folder

NAME = "torch_scatter-2.1.2-cp312-cp312-linux_x86_64.whl"


def test_a_wheel_says_what_it_was_compiled_for(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, NAME, {"torch_scatter/__init__.py": b"x = 1\n"})
    folder = tmp_path / "kept"
    assert kept_wheel(folder) is None
    made = keep_wheel(wheel, folder, environment())
    assert made.name == "torch_scatter-2.1.2+pt213cu130-cp312-cp312-linux_x86_64.whl"
    assert why_broken(made) == "", "its record is that of its content"
    with zipfile.ZipFile(made) as archive:
        metadata = archive.read("torch_scatter-2.1.2+pt213cu130.dist-info/METADATA").decode()
    assert "Version: 2.1.2+pt213cu130\n" in metadata
    assert kept_wheel(folder) == made
    assert [path.name for path in folder.iterdir()] == [made.name]
    again = tmp_path / "again"
    again.mkdir()
    assert with_local_version(made, "pt213cpu", again).name == made.name, "what has one keeps it"
    made.write_bytes(made.read_bytes()[:-10])
    assert kept_wheel(folder) is None


def test_a_folder_is_for_one_torch_python_arch_list_source_and_compiler(tmp_path: Path) -> None:
    def folder(
        source: str = "1", archs: tuple[str, ...] = ("9.0",), flags: str = "", **changes: str | None
    ) -> Path:
        variables = {"CXXFLAGS": flags, "HOME": source}
        return wheel_folder(tmp_path, "torch_scatter-2.1.2", source, environment(**changes), archs, variables)

    others = [
        folder(source="2"),
        folder(archs=("9.0", "12.0")),
        folder(flags="-O0"),
        folder(torch_version="2.13.1+cu130"),
        folder(python="3.13"),
        folder(cuda_version=None),
    ]
    assert len({folder(), *others}) == 7
    assert folder() == folder()
