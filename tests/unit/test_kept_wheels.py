"""Wheels of what install-pyg compiled: their names, their places, and what they need besides PyTorch."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest
from test_install_pyg import environment
from wheel_files import make_wheel

from groundwork.errors import IntegrityError
from groundwork.wheel_file import why_broken, with_local_version
from pyg_extensions.install.kept_wheels import KeptWheels

NAME = "torch_scatter-2.1.2-cp312-cp312-linux_x86_64.whl"


def kept(folder: Path) -> KeptWheels:
    return KeptWheels(cache=folder / "cache", environment=environment(site=folder / "site"))


def library(path: Path, *options: str) -> bytes:
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-x",
        "none",
        "-o",
        str(path),
        "-Wl,--no-as-needed",
        *options,
    ]
    source = "#include <stdio.h>\nvoid say(void) { puts(__FILE__); }\n"
    subprocess.run(command, input=source, text=True, check=True)
    return path.read_bytes()


def test_a_wheel_says_what_it_was_compiled_for(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, NAME, {"torch_scatter/__init__.py": b"x = 1\n"})
    there = kept(tmp_path)
    assert there.find(tmp_path / "place") is None
    made = there.keep(wheel, tmp_path / "place")
    assert made.name == "torch_scatter-2.1.2+pt213cu130-cp312-cp312-linux_x86_64.whl"
    assert why_broken(made) == "", "its record is that of its content"
    with zipfile.ZipFile(made) as archive:
        metadata = archive.read("torch_scatter-2.1.2+pt213cu130.dist-info/METADATA").decode()
    assert "Version: 2.1.2+pt213cu130\n" in metadata
    assert there.find(tmp_path / "place") == made
    assert [path.name for path in (tmp_path / "place").iterdir()] == [made.name]
    again = tmp_path / "again"
    again.mkdir()
    assert with_local_version(made, "pt213cpu", again).name == made.name, "what has one keeps it"
    made.write_bytes(made.read_bytes()[:-10])
    assert there.find(tmp_path / "place") is None


def test_a_place_is_for_one_torch_python_arch_list_source_and_compiler(tmp_path: Path) -> None:
    def place(
        source: str = "1", archs: tuple[str, ...] = ("9.0",), flags: str = "", **changes: str | None
    ) -> Path:
        there = KeptWheels(cache=tmp_path, environment=environment(**changes))
        return there.place("torch_scatter", "2.1.2", source, archs, {"CXXFLAGS": flags, "HOME": source})

    others = [
        place(source="2"),
        place(archs=("9.0", "12.0")),
        place(flags="-O0"),
        place(torch_version="2.13.1+cu130"),
        place(python="3.13"),
        place(cuda_version=None),
    ]
    assert len({place(), *others}) == 7
    assert place() == place()


def test_what_a_wheel_needs_besides_torch_is_told(tmp_path: Path) -> None:
    lib = tmp_path / "site" / "torch" / "lib"
    lib.mkdir(parents=True)
    torch = library(lib / "libtorch_cpu.so", "-Wl,-soname,libtorch_cpu.so")
    odd = tmp_path / "odd.so"
    library(odd, "-Wl,-soname,libodd.so.1")
    content = library(
        tmp_path / "one.so",
        f"-L{lib}",
        "-ltorch_cpu",
        str(odd),
        "-lm",
        "-Wl,-rpath,/home/me",
        "-Wl,-rpath,$ORIGIN",
    )
    wheel = make_wheel(tmp_path, NAME, {"torch_scatter/_one.so": content})
    needs = kept(tmp_path).needs(wheel, tmp_path / "empty")
    assert needs[:2] == ("libodd.so.1", "RPATH /home/me")
    assert needs[2].startswith("glibc 2.")
    assert len(needs) == 3
    vendoring = make_wheel(tmp_path / "v", NAME, {"torch_scatter.libs/libtorch_cpu.so": torch})
    with pytest.raises(IntegrityError, match=r"has a copy of PyTorch's libtorch_cpu\.so"):
        kept(tmp_path).needs(vendoring, tmp_path / "empty2")
