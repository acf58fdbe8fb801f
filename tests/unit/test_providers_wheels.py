"""Wheels: unpacking them, their packages' dependencies, PyTorch's accelerator, and NVIDIA's as conda packages."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from packaging.requirements import Requirement

from groundwork.errors import IntegrityError, ProviderError
from groundwork.machine import machine_platform
from megabuild.configs.config import load
from megabuild.configs.render import PlannedPackage, render
from megabuild.providers import catalogue, local_channel, provider
from megabuild.providers.environment import Pending, ProviderRequest
from megabuild.providers.local import interpreters
from megabuild.providers.local.compilers import Toolchain
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local_channel import LocalChannel
from megabuild.providers.pypi import nvidia, unpack, wheel_to_conda
from megabuild.providers.pypi.lock import Lock, Wheel
from megabuild.providers.wheel import provider as wheel_provider
from megabuild.providers.wheel import torch_wheels as torch
from megabuild.providers.wheel.provider import WheelProvider


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
    files = {
        "hello.py": "class Greeter:\n    @staticmethod\n    def main():\n        print('hello')\n",
        "hello-1.dist-info/entry_points.txt": "[console_scripts]\nhello = hello:Greeter.main\n[other]\nx = y\n",
        "hello-1.data/scripts/plain": "#!python\nprint('plain')\n",
        "hello-1.data/data/share/hello.txt": "data",
        "hello-1.data/headers/hello.h": "header",
    }
    unpack.library(_wheel_file(tmp_path / "hello-1-py3-none-any.whl", files), prefix, "site-packages")
    environment = {"PYTHONPATH": str(prefix / "site-packages"), "PATH": "/usr/bin:/bin"}
    for name in ("hello", "plain"):
        assert subprocess.check_output([prefix / "bin" / name], env=environment, text=True) == f"{name}\n"
    assert (prefix / "share" / "hello.txt").read_text() == "data"
    assert (prefix / "include" / "hello.h").read_text() == "header"
    assert (prefix / "site-packages/hello-1.dist-info/INSTALLER").read_text() == "conda\n", "pip leaves it"
    assert not list((prefix / "site-packages").glob("*.data"))


@pytest.mark.parametrize(
    ("member", "place"),
    [
        ("x/a", "modules/x/a"),
        ("x/__pycache__/a", None),
        ("x-1.data/purelib/x/a", "modules/x/a"),
        ("x-1.data/platlib/x/a", "modules/x/a"),
        ("x-1.data/data/share/a", "share/a"),
        ("x-1.data/headers/a", "include/a"),
    ],
)
def test_each_part_of_a_library_has_its_place(member: str, place: str | None, tmp_path: Path) -> None:
    unpack.library(_wheel_file(tmp_path / "x-1-py3-none-any.whl", {member: ""}), tmp_path / "env", "modules")
    found = [str(path.relative_to(tmp_path / "env")) for path in tmp_path.rglob("*/a")]
    assert found == ([place] if place else [])


def test_a_library_without_scripts_gets_a_folder_for_its_entry_points(tmp_path: Path) -> None:
    files = {"x.py": "", "x-1.dist-info/entry_points.txt": "[console_scripts]\nx = x:main\n"}
    (tmp_path / "env").mkdir()
    unpack.library(_wheel_file(tmp_path / "x-1-py3-none-any.whl", files), tmp_path / "env", "site-packages")
    assert os.access(tmp_path / "env/bin/x", os.X_OK)


def test_a_program_between_modules_stays_one(tmp_path: Path) -> None:
    program = zipfile.ZipInfo("torch/bin/protoc")
    program.external_attr = 0o755 << 16
    with zipfile.ZipFile(tmp_path / "torch-1-py3-none-any.whl", "w") as archive:
        archive.writestr(program, "program")
        archive.writestr("torch/x.py", "")
    unpack.library(tmp_path / "torch-1-py3-none-any.whl", tmp_path / "env", "modules")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "env/modules/torch").rglob("*")}
    assert modes["protoc"] == 0o755
    assert not modes["x.py"] & 0o111


def test_a_tool_leaves_its_python_wrapper_and_its_manual_behind(tmp_path: Path, prefix: Path) -> None:
    files = {"cmake/data/bin/cmake": "#!/bin/sh\necho 1\n"}
    places = ("share/cmake-4.2/Modules/x.cmake", "share/cmake-4.2/Help/x.rst", "doc/y", "man/z")
    files |= dict.fromkeys(("cmake/__init__.py", *(f"cmake/data/{place}" for place in places)), "")
    unpack.tool(_wheel_file(tmp_path / "cmake-1-py3-none-linux_x86_64.whl", files), prefix)
    assert subprocess.check_output([prefix / "bin" / "cmake"], text=True) == "1\n"
    assert sorted(path.name for path in prefix.iterdir()) == ["bin", "share"]
    assert [path.name for path in (prefix / "share" / "cmake-4.2").iterdir()] == ["Modules"], "no manual"


@pytest.mark.parametrize(
    ("member", "place"),
    [
        ("ninja/data/bin/x", "bin/x"),
        ("ninja-1.data/data/share/x", "share/x"),
        ("ninja-1.data/scripts/x", "bin/x"),
        ("ninja-1.dist-info/licenses/a/x", "share/licenses/ninja/a/x"),
    ],
)
def test_each_part_of_a_tool_has_its_place(member: str, place: str, tmp_path: Path) -> None:
    unpack.tool(_wheel_file(tmp_path / "ninja-1-py3-none-any.whl", {member: "x"}), tmp_path / "env")
    found = {path for path in (tmp_path / "env").rglob("*") if path.is_file()}
    assert found == {tmp_path / "env" / place}
    assert (found.pop().stat().st_mode & 0o111 == 0o111) == place.startswith("bin/")


def test_pybind11_has_its_headers_and_its_cmake_files(tmp_path: Path) -> None:
    places = ("include/pybind11/x.h", "share/cmake/pybind11/y.cmake")
    files = dict.fromkeys((f"pybind11/{place}" for place in (*places, "__init__.py")), "x")
    (tmp_path / "env").mkdir()
    wheel_to_conda._fill_pybind11_global(
        _wheel_file(tmp_path / "pybind11-3-py3-none-any.whl", files), tmp_path / "env"
    )
    found = {path for path in (tmp_path / "env").rglob("*") if path.is_file()}
    assert found == {tmp_path / "env" / place for place in places}


@pytest.mark.parametrize("survey", [True, False])
def test_a_survey_downloads_only_nvidia_s_wheels_whose_content_is_unknown(
    survey: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = [SimpleNamespace(sha256=name) for name in ("known", "unknown", "other")]
    steps: list[object] = []
    monkeypatch.setattr(provider, "noted", lambda _, digest: "x" if digest == "known" else None)
    for module, name in ((provider.lock, "resolve"), (provider.download, "download"), (nvidia, "packages")):  # type: ignore[attr-defined]
        result = SimpleNamespace(wheels=wheels) if name == "resolve" else name

        def step(*asked: object, name: str = name, result: object = result, **given: object) -> object:
            steps.append((name, asked[0]) if name == "download" else name)
            assert name != "resolve" or given["dependencies"] is False
            assert name == "packages" or given["more"] == ["index"]
            return result

        monkeypatch.setattr(module, name, step)
    config = SimpleNamespace(cuda_version="13.0", platform="linux-64")
    request = SimpleNamespace(config=config, cache=tmp_path, report=print)
    asking = cast(Any, SimpleNamespace(request=request))
    made = provider.LocalProvider.nvidia(
        asking, [], cast(Any, None), survey=survey, dependencies=False, more=["index"]
    )
    assert made == cast(Any, "packages")
    assert steps == ["resolve", ("download", wheels[1:] if survey else wheels), "packages"]


@pytest.mark.parametrize("how", [partial(unpack.library, site_packages="site-packages"), unpack.tool])
def test_the_interpreter_behind_a_link_keeps_its_mode(
    tmp_path: Path, prefix: Path, how: Callable[[Path, Path], None]
) -> None:
    machines = tmp_path / "python3"
    machines.write_text("#!python\n")
    machines.chmod(0o644)
    (prefix / "bin").mkdir(exist_ok=True)
    (prefix / "bin" / "python").unlink(missing_ok=True)
    (prefix / "bin" / "python").symlink_to(machines)
    how(_wheel_file(tmp_path / "cmake-1-py3-none-any.whl", {"cmake/data/bin/cmake": ""}), prefix)
    assert (machines.read_text(), machines.stat().st_mode & 0o777) == ("#!python\n", 0o644)


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


@pytest.mark.parametrize("target", ["evil", "", "evil:", ":main", "os system:x"])
def test_an_entry_point_without_a_function_is_refused(tmp_path: Path, target: str) -> None:
    content = {"evil-1.dist-info/entry_points.txt": f"[console_scripts]\nevil = {target}\n"}
    wheel = _wheel_file(tmp_path / "evil-1-py3-none-any.whl", content)
    with pytest.raises(IntegrityError):
        unpack.library(wheel, tmp_path / "env", "modules")


def _wheel(name: str, tag: str = "py3-none-any", *requires: str, version: str = "1.0") -> Wheel:
    return Wheel(
        name=name, version=version, file_name=f"{name}-{version}-{tag}.whl", sha256=f"{name}{tag}",
        requires=requires, requires_python=">=3.10",
    )  # fmt: skip


def _lock(python: str, *wheels: Wheel) -> Lock:
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    return Lock(python=python, environment=environment, wheels=wheels)


def _convert(*locks: Lock) -> dict[tuple[str, str], tuple[str, ...]]:
    made = wheel_to_conda.packages(locks, Path("wheels"), catalogue.load(), "linux-64")
    return {(one.name, one.subdir + one.build): one.depends for one in made}


def test_a_pure_wheel_becomes_a_package_for_each_python_whose_byte_code_it_has() -> None:
    wheel = _wheel("jinja2", "py3-none-any", "MarkupSafe>=2.0", "Babel; extra == 'i18n'")
    assert _convert(_lock("3.10", wheel), _lock("3.12", wheel)) == {
        ("jinja2", "linux-64py310h{hash}_0"): (
            "markupsafe >=2.0",
            "python 3.10.*",
            "python_abi 3.10.* *_cp310",
        ),
        ("jinja2", "linux-64py312h{hash}_0"): (
            "markupsafe >=2.0",
            "python 3.12.*",
            "python_abi 3.12.* *_cp312",
        ),
    }


def test_pybind11_brings_its_headers_and_the_lowest_version_of_its_internals(tmp_path: Path) -> None:
    wheel = _wheel("pybind11", version="3.0.1")
    headers = {
        "pybind11/include/pybind11/detail/internals.h": "# define PYBIND11_INTERNALS_VERSION 12\n",
        "pybind11/include/pybind11/detail/common.h": "#define PYBIND11_INTERNALS_VERSION 11\n",
        "pybind11/include/pybind11/other.h": "#define PYBIND11_INTERNALS_VERSION 1\n",
    }
    wheel.path(tmp_path).parent.mkdir(parents=True)
    _wheel_file(wheel.path(tmp_path), headers)
    described = wheel_to_conda.packages([_lock("3.12", wheel)], tmp_path, catalogue.load(), "linux-64")
    made = {package.name: package for package in described}
    assert {name: package.version for name, package in made.items()} == {
        "pybind11": "3.0.1", "pybind11-global": "3.0.1", "pybind11-abi": "11",
    }  # fmt: skip
    assert {"pybind11-global ==3.0.1", "pybind11-abi ==11"} <= {*made["pybind11"].depends}


def test_dependencies_may_differ_by_python() -> None:
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


def test_numpy_is_in_the_folder_of_its_python_and_bounds_what_is_built_with_it(tmp_path: Path) -> None:
    wheel = replace(_wheel("numpy", "cp313-cp313t-linux_x86_64", version="2.1"), size=7)
    wheel.path(tmp_path).parent.mkdir()
    _wheel_file(wheel.path(tmp_path), {"numpy/__init__.py": ""})
    (package,) = wheel_to_conda.packages([_lock("3.13t", wheel)], tmp_path, catalogue.load(), "linux-64")
    assert package.run_exports == {"weak": ("numpy >=1.23,<3",)}
    assert package.size == 7, "a plan counts the download"
    package.fill(tmp_path / "env")
    assert (tmp_path / "env/lib/python3.13t/site-packages/numpy/__init__.py").is_file()


def test_a_project_asked_for_by_two_names_is_one_package_and_another_that_needs_it() -> None:
    table = catalogue.load().with_wheels(["setuptools_scm"])
    assert table.conda_name("setuptools-scm") == "setuptools_scm"
    package = LocalPackage(name="setuptools_scm", version="9.0", platform="linux-64")
    asked = ["setuptools_scm", "setuptools-scm", "numpy"]
    (other,) = wheel_to_conda.other_names([package], asked, table, "linux-64")
    assert (other.name, other.version, other.depends) == ("setuptools-scm", "9.0", ("setuptools_scm ==9.0",))


# ------------------------------------------------------------------------------------ PyTorch's and NVIDIA's wheels

LINUX = {"platform_system": "Linux", "python_version": "3.12", "sys_platform": "linux"}
CUDA = (
    'cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"',
    'nvidia-cudnn-cu13==9.20.0.48; platform_system == "Linux"',
    "filelock",
)


def _locked(version: str, requires: tuple[str, ...] = (), name: str = "torch") -> Wheel:
    return _wheel(name, "cp312-cp312-linux_x86_64", *requires, version=version)


def _alone(wheel: Wheel) -> Lock:
    return Lock(python="3.12", environment=LINUX, wheels=(wheel,))


@pytest.mark.parametrize(
    ("version", "requires", "expected"),
    [
        ("2.13.0+cpu", (), None),
        ("2.13.0", ("filelock",), None),
        ("2.13.0", CUDA, "13.0"),
        ("2.13.0", CUDA[::-1], "13.0"),
        ("2.13.0+cu129", (), "12.9"),
        ("2.6.0", ('nvidia-cuda-runtime-cu12==12.4.127; platform_system == "Linux"',), "12.4"),
        ("2.13.0", ('cuda-toolkit[cudart]==13.0.3; platform_system == "Windows"',), None),
    ],
)
def test_local_version_or_requirements_tell_the_accelerator(
    version: str, requires: tuple[str, ...], expected: str | None
) -> None:
    assert torch.accelerator(_alone(_locked(version, requires))) == expected


def test_nvidias_wheels_have_what_the_extensions_are_built_with(repository: Path) -> None:
    # as in the metadata of 2.15.0, the first without curand
    brought = ("cublas", "cudart", "cufft", "cufile", "cupti", "cusolver", "cusparse", "nvjitlink", "nvrtc",
               "nvtx")  # fmt: skip
    table = catalogue.load()
    longer = {name: f"cuda-{name}" for name in ("cccl", "nvcc")}
    longer |= {"cudart": "cuda-runtime", "profiler": "cuda-profiler-api"}
    had = {f"nvidia-{longer.get(part, part)}" for part in (*brought, *table.nvidia_toolkit)}
    (package, *_) = render(
        load(repository, "linux_64_cuda132_wheel"),
        repository / "recipe" / "pyg" / "pytorch_scatter" / "recipe.yaml",
    )
    names = {spec.split()[0] for spec in package.host}
    needed = {wheel for wheel, made in table.nvidia.items() if names & {made.run, made.dev, *made.also}}
    assert needed
    assert needed <= had


def test_the_toolkit_is_asked_for_in_the_version_of_the_wheel_and_triton_named() -> None:
    named = 'triton~=3.9.0; python_version < "3.16"'
    for required, version in ((named, "3.9.0"), ("triton; extra == 'x'", None)):
        wheel = _locked("2.15.0", (*CUDA, required))
        assert torch.named_triton(wheel.needs(LINUX)) == version
    asked = torch.requirements(_alone(_locked("2.13.0", CUDA)), ["nvcc", "cccl"])
    assert asked == [
        "cuda-toolkit[cublas,cudart]==13.0.3",
        "nvidia-cudnn-cu13==9.20.0.48",
        "cuda-toolkit[nvcc,cccl]==13.0.3",
    ]


def test_a_wheel_without_a_toolkit_is_refused() -> None:
    wheel = _locked("2.10.0", ("nvidia-cuda-runtime-cu12==12.6.77",))
    with pytest.raises(ProviderError, match=f"^{wheel.file_name}: unknown CUDA toolkit"):
        torch.requirements(_alone(wheel), ["nvcc"])


@pytest.mark.parametrize(("cuda", "suffix"), [("12.9", "-14"), ("13.2", "-15"), ("14.0", None)])
def test_nvcc_of_a_wheel_gets_the_newest_gcc_that_it_accepts(
    cuda: str, suffix: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel_provider, "find_gcc_suffix", lambda newest, path: f"-{newest}")
    monkeypatch.setattr(wheel_provider, "probe", lambda suffix="": suffix)
    assert wheel_provider._host_compiler(cuda) == cast(Any, suffix)


def test_the_version_of_triton_is_found_among_excluded_ones() -> None:
    excluded = ",".join(f"!=3.9.{number}" for number in range(1, 60))
    assert torch.named_triton([Requirement(f"triton{excluded},~=3.9.0")]) == "3.9.0"
    assert torch.named_triton([Requirement(f"triton{excluded},<4")]) is None
    assert torch.named_triton([Requirement("sympy>=1"), Requirement("pytorch-triton==3.9.0")]) == "3.9.0"


def test_wheels_and_packages_that_a_run_must_still_get_are_pending(repository: Path, tmp_path: Path) -> None:
    config = load(repository, "linux_64_cpu_wheel")
    request = ProviderRequest(config=config, planned=(), cache=tmp_path, report=lambda _: None)
    toolchain = Toolchain(cc="", cxx="", version="14", glibc="2.41", programs={}, libraries={}, digest="")
    package = LocalPackage(name="x", version="1", platform="linux-64", inputs={"wheel": "a" * 64}, size=10)
    channel = LocalChannel(
        path=tmp_path,
        packages=(),
        toolchain=toolchain,
        stand_ins=(),
        by_name=(),
        missing=(package,),
        ready=False,
    )
    provider = WheelProvider(request)
    made = provider.of_channel(channel, (), {}, {"b": 700})
    assert made.pending == Pending(wheels=2, download=710, bytes=740, packages=1, sources=1)
    assert made.overrides["c_compiler_version"] == ("14",)
    assert "c_compiler_version 14 (not " in made.notes[0]
    (tmp_path / "wheels" / ("a" * 16)).mkdir(parents=True)
    (tmp_path / "wheels" / ("a" * 16) / "x-1.whl").touch()
    assert provider.of_channel(channel, (), {}).pending == Pending(bytes=30, packages=1)
    done = replace(channel, missing=(), ready=True)
    assert provider.of_channel(done, (), {}).pending is None
    assert provider.of_channel(done, (), {}, {"b": 700}).pending == Pending(
        wheels=1, download=700, bytes=700, sources=1
    )


@pytest.mark.skipif(machine_platform() != "linux-64", reason="the config is for linux-64")
@pytest.mark.parametrize("surveyed", [True, False])
def test_the_environment_of_official_wheels_is_made_of_the_wheel_of_the_base_python(
    surveyed: bool, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of the wheels of the requested Pythons, from the indexes on which PyTorch's were found."""
    asked: list[object] = []
    config = load(repository, "linux_64_cuda132_wheel")
    base = config.variant["torch_python_base"][0]
    locks = {
        python: _alone(replace(_locked(f"2.13.0+{number}", (*CUDA, f"triton==3.{number}.0")), sha256=python))
        for number, python in enumerate(("3.10", base, "3.14"))
    }
    found = torch.TorchWheels(
        locks=locks, left_out={"3.11": "no wheel"}, more=("https://more.invalid",), notes=("silent",)
    )
    (wheel,) = locks[base].wheels
    installed: dict[str, Any] = {python: f"Python {python}" for python in ("3.10", base, "3.14")}
    toolchain = Toolchain(cc="", cxx="", version="14.2.0", glibc="2.36", programs={}, libraries={}, digest="")
    own = [LocalPackage(name="cuda-nvcc", version="1", platform="linux-64")]

    def find(_: object, __: object, folder: Path, needed: set[str]) -> torch.TorchWheels:
        asked.append((folder, needed))
        return found

    def fetch(_: object, wheels: torch.TorchWheels, pythons: Sequence[str], **__: object) -> None:
        asked.append((wheels, pythons))

    def of_nvidia(_: object, needs: Sequence[str], python: object, **how: object) -> list[LocalPackage]:
        asked.append((needs, python, how))
        return own

    def make(_: object, needs: Sequence[str], pythons: dict[str, Any], **how: object) -> LocalChannel:
        asked.append((needs, [*pythons], how))
        return LocalChannel(path=tmp_path, packages=(), toolchain=toolchain, stand_ins=(), by_name=())

    monkeypatch.setattr(interpreters, "some_of", lambda *_: installed)
    monkeypatch.setattr(torch, "find", find)
    monkeypatch.setattr(torch, "fetch", fetch)
    monkeypatch.setattr(WheelProvider, "nvidia", of_nvidia)
    monkeypatch.setattr(local_channel, "make", make)
    monkeypatch.setattr(wheel_provider, "_host_compiler", lambda cuda: f"GCC for CUDA {cuda}")
    compiler = ("cuda-nvcc_linux-64 13.2.*",) if surveyed else ()  # of extensions that are compiled
    planned = [
        PlannedPackage(
            name=f"p{number}", version="1", build_string="0", build_number=0, file_name="a", subdir="linux-64",
            python=python, build=compiler, host=("triton >=3.5", "six"), run=(), constraints=(), test=(),
        )
        for number, python in enumerate((None, "3.14"))
    ]  # fmt: skip
    request = ProviderRequest(config=config, planned=planned, cache=tmp_path, report=lambda _: None)
    asker = WheelProvider(request)
    environment = asker.survey() if surveyed else asker.provide()
    looked, *fetched, toolkit, channel = asked
    assert looked == (tmp_path / "wheels", {"3.14"})
    assert fetched == ([] if surveyed else [(found, [base, "3.14"])])
    needs = torch.requirements(locks[base], catalogue.load().nvidia_toolkit)
    assert toolkit == (needs, installed[base], {"survey": surveyed, "more": found.more})
    how = {"survey": surveyed, "extra": own, "more": found.more, "toolchain": None}
    if compiler:
        how["toolchain"] = "GCC for CUDA 13.2"
    assert channel == ([*compiler, "six", "triton ==3.1.0"], [base, "3.14"], how)
    assert environment.staging_source == {wheel.file_name: wheel.sha256}
    assert environment.source == torch.folder(config, tmp_path)
    assert (environment.pythons, environment.left_out) == (("3.10", base, "3.14"), found.left_out)
    assert environment.overrides["triton_version"] == ("3.1.0",)
    assert environment.notes[-2:] == ("silent", f"libtorch is made from {wheel.file_name}")
    assert environment.pending is not None
    assert environment.pending.sources == 2, "the wheels of both Pythons are absent"


def test_nvidias_wheels_become_conda_forges_packages(tmp_path: Path) -> None:
    contents = {
        "nvidia-cuda-runtime": [
            "nvidia/cu13/lib/libcudart.so.13",
            "nvidia/cu13/lib/libother.so.13",
            "nvidia/cu13/lib/libother.so.13.1",
            "nvidia/cu13/include/cuda_runtime.h",
        ],
        "nvidia-cuda-nvcc": ["nvidia/cu13/bin/nvcc", "nvidia/cu13/bin/crt/link.stub"],
        "nvidia-nvvm": ["nvidia/cu13/nvvm/bin/cicc"],
        "nvidia-cuda-crt": ["nvidia/cu13/include/crt/host_config.h"],
        "nvidia-cuda-cccl": ["nvidia/cu13/include/cccl/cub/cub.cuh", "nvidia/cu13/.metadata/x.txt"],
        "nvidia-cusparse": ["nvidia/cu13/lib/libcusparse.so.12", "nvidia/cu13/include/cusparse.h"],
        "nvidia-nvjitlink": ["nvidia/cu13/lib/libnvJitLink.so.13", "nvidia/cu13/include/nvJitLink.h"],
    }
    wheels = []
    for name, members in contents.items():
        requires = ("nvidia-nvjitlink",) if name == "nvidia-cusparse" else ()
        wheel = replace(_locked("13.0.88", requires, name.replace("-", "_")), size=7)  # as their metadata
        wheels.append(wheel)
        wheel.path(tmp_path).parent.mkdir()
        licences = [f"{name}.dist-info/licenses/{folder}License.txt" for folder in ("", "more/")]
        with zipfile.ZipFile(wheel.path(tmp_path), "w") as archive:
            for member in (*members, *licences):
                archive.writestr(member, member)
    locked = Lock(python="3.12", environment=LINUX, wheels=(*wheels, _locked("1.0", name="cuda-toolkit")))
    described = nvidia.packages(locked, tmp_path, catalogue.load().nvidia, "13.0", "linux-64", tmp_path)
    made = {package.name: package for package in described}
    assert {
        "cuda-version", "cuda-cudart", "cuda-cudart-dev", "cuda-nvcc_linux-64", "libcusparse", "libcusparse-dev"
    } <= set(made)  # fmt: skip
    assert made["cuda-version"].version == "13.0"
    assert made["libcusparse"].depends == ("cuda-version 13.0.*", "libnvjitlink")
    assert made["libcusparse-dev"].depends[:2] == ("libcusparse ==13.0.88", "cuda-version 13.0.*")
    assert made["libcusparse"].size == 7, "a plan counts the download"
    assert made["libcusparse-dev"].run_exports == {"weak": ("libcusparse >=13.0.88,<14.0a0",)}
    # libraries are where RPATHs find them, and linkers have links
    made["cuda-cudart"].fill(tmp_path / "run")
    made["cuda-cudart-dev"].fill(tmp_path / "dev")
    assert (tmp_path / "run/lib/libcudart.so.13").read_text() == "nvidia/cu13/lib/libcudart.so.13"
    assert not (tmp_path / "run/include").exists()
    assert {path.name for path in tmp_path.glob("run/share/licenses/*/*")} == {"License.txt", "1License.txt"}
    assert (tmp_path / "dev/lib/libcudart.so").readlink() == Path("libcudart.so.13")
    assert (tmp_path / "dev/lib/libother.so").readlink() == Path("libother.so.13")
    assert (tmp_path / "dev/include/cuda_runtime.h").is_file()
    assert (tmp_path / "dev/targets/x86_64-linux/include/cuda_runtime.h").is_file()
    assert not list((tmp_path / "dev").rglob("*.so.13"))
    for_arm = nvidia.packages(locked, tmp_path, catalogue.load().nvidia, "13.0", "linux-aarch64", tmp_path)
    next(package for package in for_arm if package.name == "cuda-cudart-dev").fill(tmp_path / "arm")
    assert (tmp_path / "arm/targets/sbsa-linux/include/cuda_runtime.h").is_file()
    # nvcc comes with all it needs, in its own layout
    parts = ("cuda-nvcc-tools", "cuda-nvvm-tools", "cuda-crt-dev", "cuda-cudart-dev", "cuda-cccl")
    exact = [f"{part} ==13.0.88" for part in parts]
    assert made["cuda-nvcc_linux-64"].depends == (*exact, "cuda-version 13.0.*", "gxx_linux-64")
    assert made["cuda-nvcc_linux-64"].run_exports == {"strong": ("cuda-version >=13.0,<14",)}
    made["cuda-nvcc-tools"].fill(tmp_path / "tools")
    made["cuda-nvvm-tools"].fill(tmp_path / "tools")
    for program in ("bin/nvcc", "nvvm/bin/cicc"):
        assert (tmp_path / "tools" / program).stat().st_mode & 0o111, program
    made["cuda-nvcc_linux-64"].fill(tmp_path / "activation")
    (script,) = (tmp_path / "activation/etc/conda/activate.d").iterdir()
    assert script.name > "activate-gxx_linux-64.sh"  # $CXX is set by then
    assert "-ccbin=${CXX}" in script.read_text()


@pytest.mark.parametrize("needed", [(), ("3.12",), ("3.13",), ("3.12", "3.13")], ids=str)
@pytest.mark.parametrize("silent", [(), ("3.12",), ("3.12", "3.13")], ids=str)
def test_a_needed_python_is_not_left_out_because_no_index_answered(
    needed: Sequence[str], silent: Sequence[str]
) -> None:
    missing = {}
    for python in ("3.12", "3.13"):
        missing[python] = torch.NoWheel(reason="x", is_known=python not in silent)
    is_unknown = bool({*silent} & ({*needed} or {*silent}))
    with pytest.raises(ProviderError) if is_unknown else nullcontext():
        torch._check_answered(cast(Any, SimpleNamespace(name="a")), missing, needed)
