"""Compiling for another architecture: what its root is made of, its Pythons, and how its programs are run."""

from __future__ import annotations

import os
from collections import namedtuple
from pathlib import Path

import pytest
from packaging.version import Version

from groundwork.errors import ProviderError
from groundwork.network.index import File, best_first, parsed
from megabuild.isolation import emulation
from megabuild.providers.debian import foreign, root
from megabuild.providers.debian.foreign import Foreign

ARM = Foreign(arch="arm64", native="amd64", triplet="aarch64-linux-gnu")


def test_a_platform_is_compiled_for_natively_where_it_is_the_machine_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(foreign, "machine_platform", lambda: "linux-aarch64")
    assert foreign.of("linux-aarch64") is None
    with pytest.raises(ProviderError, match="does not compile for linux-64 on linux-aarch64"):
        foreign.of("linux-64")
    monkeypatch.setattr(foreign, "machine_platform", lambda: "linux-64")
    assert foreign.of("linux-64") is None
    assert foreign.of("linux-aarch64") == ARM
    monkeypatch.setattr(foreign, "machine_platform", lambda: "osx-arm64")
    with pytest.raises(ProviderError) as refused:
        foreign.of("linux-aarch64")
    assert "or of linux-64" in refused.value.remedy


def test_its_root_has_programs_of_the_machine_and_libraries_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "file:///mirror/debian")
    lines, packages, place = root.wanted(tmp_path, cuda=False, foreign=ARM)
    assert {"cmake", "protobuf-compiler", "qemu-user", "crossbuild-essential-arm64"} < set(packages)
    assert {"libopenblas-dev:arm64", "libonnx-dev:arm64", "libffi8:arm64"} < set(packages)
    assert "libopenblas-dev" not in packages
    assert {line.split()[2] for line in lines if line.startswith("deb ")} == {"bookworm", "trixie"}
    assert place != root.wanted(tmp_path, cuda=False)[2]


def test_pythons_are_described_without_running_them(tmp_path: Path) -> None:
    headers = tmp_path / "python3.11" / "usr" / "include" / "python3.11"
    headers.mkdir(parents=True)
    (headers / "patchlevel.h").write_text('/* x */\n#define PY_VERSION      	"3.11.2+"\n')
    found = ARM.interpreters(tmp_path)
    assert (found["3.11"].version, found["3.13"].version) == ("3.11.2", "3.13.0")  # a plan need not be exact
    assert found["3.13"].soabi == "cpython-313-aarch64-linux-gnu"


def test_a_python_of_another_machine_gets_that_machine_s_wheels() -> None:
    names = ("x86_64", "aarch64")
    offered = [_file(f"numpy-2.2.0-cp313-cp313-manylinux_2_28_{name}.whl") for name in names]
    offered.append(_file("numpy-2.1.0-py3-none-any.whl"))
    fitting = best_first(offered, "3.13", ARM.interpreters(Path("/nowhere"))["3.13"].platforms)
    assert [file.name for file in fitting] == [offered[1].name, offered[2].name]


def _file(name: str) -> File:
    project, version, tags = parsed(name) or ("", Version("0"), frozenset())
    return File(name=name, project=project, version=version, url=f"file:///{name}", tags=tags)


def test_the_emulator_is_registered_for_one_process_tree_where_the_kernel_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = tmp_path / "qemu-aarch64"
    said = namedtuple("said", "release")
    monkeypatch.setattr(os, "uname", lambda: said("6.7.0-1-amd64"))
    words = emulation.before(emulator)
    assert words[:2] == ["unshare", "--user"]
    line = words[-1].split(":")
    assert (line[1], line[4][:16], line[4][-8:], line[-2:]) == (
        "qemu-aarch64",
        r"\x7f\x45\x4c\x46",
        r"\xb7\x00",
        [str(emulator), "F"],
    )
    assert line[4].count("\\") == line[5].count("\\") == 20
    monkeypatch.setattr(os, "uname", lambda: said("6.1.0-40-amd64"))
    assert emulation.before(emulator) == []
