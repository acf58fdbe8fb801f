"""Wheels of what was built: what is in them, what they ask for, and the index that they lie in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import wheels_world as world
from package_files import rot
from small_files import write

from conda_wheels import built, licences, simple_index, tools, wheel_tree
from conda_wheels.make_wheels import Request, make
from conda_wheels.wheels_report import WheelIndex, result
from cuda_code.elf_file import opened
from groundwork.errors import BuildError, BusyError, ConfigError, IntegrityError, UsageError
from groundwork.files import FileLock
from groundwork.machine import machine_platform
from groundwork.wheel_file import pack, unpack, why_broken
from megabuild.providers.debian.root import DebianRoot
from megabuild.store import published

pytestmark = [
    pytest.mark.skipif(machine_platform() != "linux-64", reason="packages of linux-64"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed"),
]
SPLINE = "torch_spline_conv"


def request_of(output: Path, **changes: Any) -> Request:
    values = {"pythons": (), "names": (), "cache": output.parent / "cache", "date": world.DATE, **changes}
    return Request(output=output, config=world.CONFIG, **values)


def made(output: Path, **changes: Any) -> WheelIndex:
    return make(request_of(output, **changes), lambda text: None)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a run built, with its wheels."""
    folder = world.make(tmp_path_factory.mktemp("world"))
    made(folder)
    return folder


@pytest.fixture
def own(output: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(output, tmp_path / "output", symlinks=True))


def simple(output: Path) -> Path:
    return output / "wheels" / world.CONFIG / simple_index.SIMPLE


def wheel(output: Path, project: str) -> Path:
    (found,) = simple(output).glob(f"*/{project}-*.whl")
    return found


def unpacked(output: Path, project: str, folder: Path) -> Path:
    with zipfile.ZipFile(wheel(output, project)) as archive:
        archive.extractall(folder)
    return folder


def test_torch_is_complete_and_every_library_is_there_once(output: Path, tmp_path: Path) -> None:
    path = wheel(output, "torch")
    assert why_broken(path) == ""
    name, version, python, abi, platform = path.name.removesuffix(".whl").split("-")
    assert (name, version, python, abi) == ("torch", "2.6.0+cpu", world.TAG, world.TAG)
    assert platform.startswith("manylinux_2_")
    folder = unpacked(output, "torch", tmp_path)
    there = {one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file()}
    (odd,) = folder.glob("torch.libs/libodd-*.so.1")
    info = "torch-2.6.0+cpu.dist-info"
    assert there == {
        "torch/__init__.py", "torch/version.py", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so",
        "torch/bin/torch_shm_manager", "torch/include/c10/c10.h", "torch/include/own.h",
        "torch/include/pybind11/detail/common.h",
        "torch/share/cmake/Torch/Targets.cmake", f"torch.libs/{odd.name}",
        f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD", f"{info}/LICENSE",
        f"{info}/licenses/libtorch/LICENSE",
    }  # fmt: skip
    assert 'libc10.so"' in (folder / "torch/share/cmake/Torch/Targets.cmake").read_text()
    assert (folder / "torch/version.py").read_text() == "__version__ = '2.6.0+cpu'\n"
    (known,) = (one for one in simple_index.read(simple(output).parent) if one.project == "torch")
    page = (simple(output) / "torch" / "index.html").read_text()
    assert f'href="{known.name.replace("+", "%2B")}#sha256={known.sha256}"' in page
    assert 'data-requires-python="&gt;=3.9"' in page
    assert 'href="torch-spline-conv/"' in (simple(output) / "index.html").read_text()
    with opened(folder / "torch/lib/libtorch_cpu.so") as elf:
        assert elf.soname() == "libtorch_cpu.so"
        assert {*elf.needed()} >= {"libc10.so", odd.name}
        assert elf.rpath() == ("$ORIGIN", "$ORIGIN/../../torch.libs")


def test_an_extension_asks_for_the_torch_it_was_compiled_for_and_has_no_paths(
    output: Path, tmp_path: Path
) -> None:
    folder = unpacked(output, SPLINE, tmp_path)
    (info,) = folder.glob("*.dist-info")
    assert info.name == f"{SPLINE}-1.2.2+pt26cpu.dist-info"
    head = (info / "METADATA").read_text().partition("\n\n")[0]
    assert "Requires-Dist: torch==2.6.0+cpu" in head
    assert 'Requires-Dist: pytest; extra == "test"' in head
    with opened(folder / SPLINE / "_basis_cpu.so") as elf:
        assert "libtorch_cpu.so" in elf.needed()
        assert elf.rpath() == ()
    assert not [*folder.glob("*.libs")]


def test_wheels_of_the_same_packages_are_the_same_from_any_folder(output: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "a" / "much" / "longer" / "way"
    shutil.copytree(output / "packages", elsewhere / "packages")
    made(elsewhere, cache=tmp_path / "other-cache")
    for project in ("torch", SPLINE):
        assert wheel(elsewhere, project).read_bytes() == wheel(output, project).read_bytes()


def test_nothing_is_made_twice_and_former_wheels_stay(own: Path) -> None:
    again = made(own, names=(SPLINE,))
    assert [(one.wheel.project, one.kept) for one in again.made] == [(SPLINE, True)]
    assert wheel(own, "torch")
    wheel(own, SPLINE).write_bytes(b"damaged")
    again = made(own)
    assert [(one.wheel.project, one.kept) for one in again.made] == [("torch", True), (SPLINE, False)]
    shown = result(again, 1.0)
    assert (
        max(map(len, shown.lines[: len(again.made) + 1])) <= 80
    )  # file names are in the folder, and in the JSON
    document: Any = shown.to_json()
    assert [(row["project"], row["made"]) for row in document["wheels"]] == [("torch", False), (SPLINE, True)]
    assert why_broken(wheel(own, SPLINE)) == ""


def test_torch_is_made_again_after_its_libraries(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt = {
        name: replace(record, sha256="0" * 64) if name.startswith("libtorch") else record
        for name, record in published.records(own / "packages" / world.CONFIG).items()
    }
    monkeypatch.setattr(published, "records", lambda channel: rebuilt)
    assert [(row.wheel.project, row.kept) for row in made(own).made] == [("torch", False), (SPLINE, True)]


def test_wheels_of_packages_whose_tests_are_missing_are_made_with_a_warning(own: Path) -> None:
    path = own / "packages" / world.CONFIG / published.RECORDS
    records = json.loads(path.read_text())
    assert result(made(own), 1.0).document["untested"] == []
    (libtorch,) = (name for name in records if name.startswith("libtorch-2"))
    records[libtorch]["is_tested"] = False
    path.write_text(json.dumps(records))
    told = result(made(own), 1.0)
    assert told.document["untested"] == [libtorch], "it is a part of PyTorch's wheel"
    assert told.lines[-1] == f"! never tested: {libtorch.removesuffix('.conda')}"
    assert result(made(own, names=(SPLINE,)), 1.0).document["untested"] == []


def test_a_second_process_makes_no_wheels(own: Path) -> None:
    with FileLock(own / "wheels" / world.CONFIG / ".lock"), pytest.raises(BusyError):
        made(own)


def test_a_package_that_rotted_becomes_no_wheel(own: Path) -> None:
    shutil.rmtree(own / "wheels")
    (package,) = (own / "packages").rglob("pytorch_spline_conv-*.conda")
    rot(package)
    with pytest.raises(IntegrityError, match="damaged"):
        made(own, names=(SPLINE,))
    package.unlink()
    with pytest.raises(IntegrityError, match="missing"):
        made(own)


def test_an_index_is_the_former_one_until_the_new_one_is_whole(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in simple(own).rglob("*") if path.is_file()}

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(simple_index, "_write_pages", full)
    with pytest.raises(OSError, match="No space"):
        made(own, date=world.DATE + 1000)
    assert {path: path.read_bytes() for path in simple(own).rglob("*") if path.is_file()} == before
    monkeypatch.undo()
    made(own, date=world.DATE + 1000)
    assert len([*(own / "wheels" / world.CONFIG).glob(".s*")]) == 1, "what a killed run left is removed"


def test_what_cannot_become_wheels_is_told_with_what_can(own: Path) -> None:
    channel = own / "packages" / world.CONFIG
    with pytest.raises(UsageError, match=r"Python 3\.1$"):
        built.find(channel, ("3.1",), ())
    with pytest.raises(UsageError, match="torch-scatter"):
        built.find(channel, (), ("pytorch_scatter",))
    with pytest.raises(ConfigError) as missing:
        make(replace(request_of(own), config="linux_64_cpu_wheel"), lambda text: None)
    assert world.CONFIG in missing.value.remedy


def _renamed(output: Path, before: str, after: str, keep: str = "") -> Path:
    """Let packages be of another flavour, by their names."""
    channel = output / "packages" / world.CONFIG
    known = json.loads((channel / published.RECORDS).read_text())
    text = json.dumps({name: record for name, record in known.items() if keep in name}).replace(before, after)
    (channel / published.RECORDS).write_text(text)
    for path in channel.glob("linux-64/*.conda"):
        path.rename(path.with_name(path.name.replace(before, after)))
    return channel


def test_a_pytorch_compiled_for_cuda_has_nvidias_libraries_from_nvidias_wheels(tmp_path: Path) -> None:
    output = world.make(tmp_path / "world", "cuda124")
    made(output)
    site = unpacked(output, "torch", tmp_path / "site")
    head = (site / "torch-2.6.0+cu124.dist-info" / "METADATA").read_text().partition("\n\n")[0]
    assert [line for line in head.splitlines() if line.startswith("Requires-Dist")] == [
        "Requires-Dist: triton==3.2.0",
        "Requires-Dist: cuda-toolkit[cudart]==12.4.*",
        "Requires-Dist: nvidia-cudnn-cu12>=9.1.0,<10",
    ]
    (odd,) = site.glob("torch.libs/*")  # and nothing of NVIDIA's
    up = "$ORIGIN/../.."
    for path, own in ((site / "torch/lib/libtorch_cpu.so", ["$ORIGIN"]), (odd, ["$ORIGIN", "torch/lib"])):
        with opened(path) as elf:
            places = [place.removeprefix(f"{up}/").removeprefix("$ORIGIN/../") for place in elf.rpath()]
        assert places[: len(own) + 2] == [*own, "nvidia/cuda_runtime/lib", "nvidia/cudnn/lib"]
    unpacked(output, SPLINE, site)
    (shm,) = site.glob("torch/bin/*")
    shm.chmod(0o755)
    command = [sys.executable, "-c", f"import {SPLINE} as x; print(x.answer)"]

    def imported() -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=site, capture_output=True, text=True)

    assert "libcudart.so.12" in imported().stderr
    world.nvidias(site / "nvidia")
    assert imported().stdout == "42\n"


def test_official_wheels_may_have_any_local_version_and_are_alone_no_reason_to_make_wheels(own: Path) -> None:
    (extension,) = built.find(_renamed(own, "cpu_generic", "cuda132_wheel"), (), ())
    assert (extension.wheel_version, extension.requires) == ("1.2.2+pt26cu132", ("torch==2.6.0",))
    with pytest.raises(ConfigError, match="neither extensions") as raised:
        built.find(_renamed(own, "cuda132_wheel", "cpu_wheel", keep="torch-2"), (), ())
    assert f"{world.CONFIG} --pyg source" in raised.value.remedy


def _needs_nowhere(tmp_path: Path, system: Path) -> Path:
    """A wheel with a library that needs one of another system's."""
    folder = tmp_path / "tree"
    inner = world.library(system / "libnowhere.so.1", "int x;")
    world.library(folder / "torch_spline_conv" / "_x.so", "int y;", str(inner))
    world._dist_info(folder, SPLINE, "1.2.2")
    name = wheel_tree.tag(folder, "linux-64")
    (tmp_path / "work").mkdir()
    return pack(folder, tmp_path / name, world.DATE)


def test_what_no_package_has_comes_from_the_root_with_its_licence(tmp_path: Path) -> None:
    root = tmp_path / "root"
    debian = DebianRoot(path=root, fingerprint="", release="13")
    plain = _needs_nowhere(tmp_path, debian.libraries)
    path = f"/{(debian.libraries / 'libnowhere.so.1').relative_to(root)}"
    for name, text in (
        ("var/lib/dpkg/info/libnowhere1:amd64.list", f"/.\n{path}\n"),
        ("var/lib/dpkg/info/libelse1:amd64.list", "/.\n/usr/lib/libelse.so.1\n"),
        ("usr/share/doc/libnowhere1/copyright", "do as you like"),
        ("usr/share/doc/libelse1/copyright", "do not"),
    ):
        write(root / name, text)
    (tmp_path / "other").mkdir()
    with pytest.raises(BuildError, match=r"libnowhere\.so\.1"):
        tools.auditwheel(plain, tmp_path / "other", libraries=None, without=(), date=world.DATE)
    places = [tmp_path / "none", debian.libraries]
    wheel = tools.auditwheel(plain, tmp_path / "work", libraries=places, without=(), date=world.DATE)
    tree = unpack(wheel, tmp_path / "repaired")
    assert [path.name.partition("-")[0] for path in tree.glob("*.libs/*")] == ["libnowhere"]
    notice = root / "usr/share/doc/libnowhere1/copyright"
    assert licences.of_vendored(tree, {}, root) == {"system/libnowhere1/copyright": notice}


def test_libraries_of_the_callers_variable_are_not_vendored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = _needs_nowhere(tmp_path, tmp_path / "callers")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "callers"))
    with pytest.raises(BuildError, match=r"libnowhere\.so\.1"):
        tools.auditwheel(plain, tmp_path / "work", libraries=[tmp_path / "none"], without=(), date=world.DATE)


def test_a_library_of_the_system_is_not_vendored_unasked(tmp_path: Path) -> None:
    try:
        world.library(tmp_path / "tree" / "torch_spline_conv" / "_x.so", "int y;", "-l:liblzma.so.5")
    except subprocess.CalledProcessError:
        pytest.skip("liblzma is not installed")
    world._dist_info(tmp_path / "tree", SPLINE, "1.2.2")
    plain = pack(tmp_path / "tree", tmp_path / wheel_tree.tag(tmp_path / "tree", "linux-64"), world.DATE)
    with pytest.raises(BuildError, match="liblzma"):
        tools.auditwheel(plain, tmp_path, libraries=None, without=(), date=world.DATE)


USES_PYTHON = "int PyLong_AsLong(int); int y(void) { return PyLong_AsLong(1); }"


@pytest.mark.parametrize(("code", "good"), [("int y;", True), (USES_PYTHON, False)])
def test_abi3_is_believed_of_what_makes_no_use_of_one_python(tmp_path: Path, code: str, good: bool) -> None:
    world.library(tmp_path / "pyg_lib" / "libpyg.so", code)
    world._dist_info(tmp_path, "pyg_lib", "0.8.0")
    says = tmp_path / "pyg_lib-0.8.0.dist-info" / "WHEEL"
    says.write_text("Wheel-Version: 1.0\nTag: cp310-abi3-linux_aarch64\n")
    if good:
        assert wheel_tree.tag(tmp_path, "linux-aarch64") == "pyg_lib-0.8.0-cp310-abi3-linux_aarch64.whl"
    else:
        with pytest.raises(IntegrityError, match="needs PyLong_AsLong"):
            wheel_tree.tag(tmp_path, "linux-aarch64")


def test_a_former_index_that_a_killed_process_left_is_removed(own: Path) -> None:
    former = write(own / "wheels" / world.CONFIG / ".simple-0123abcd" / "index.html").parent
    made(own)
    assert not former.exists()
    assert (simple(own) / "index.html").exists()
