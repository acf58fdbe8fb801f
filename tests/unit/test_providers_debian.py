"""The Debian root: what it will be made of, asking before installing, and choosing libraries, CUDA's among them."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import Timeout
from small_files import program, shared_library, write
from stop_at_write import unflushed, watched

from cuda_code.elf_file import opened
from groundwork.errors import ProviderError
from groundwork.files import FileLock
from groundwork.machine import machine_platform
from megabuild.configs.config import load
from megabuild.providers import catalogue, local_channel
from megabuild.providers.debian import cuda, libraries, provider, root
from megabuild.providers.debian.foreign import Foreign
from megabuild.providers.debian.provider import DebianProvider
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.environment import Pending, ProviderRequest
from megabuild.providers.local import interpreters
from megabuild.providers.local.compilers import Toolchain
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local_channel import LocalChannel
from megabuild.providers.select import choose_provider

ARM = Foreign(arch="arm64", native="amd64", triplet="aarch64-linux-gnu")


def test_a_build_dependency_stands_for_the_library_of_its_own_version() -> None:
    depends = {
        "libonnx-dev": "libonnx1t64 (= 1.17), libprotobuf-dev, libre2-11 (>= 1), python3",
        "libprotobuf-dev": "libprotobuf32t64 (= 3.21)",
        "libopenblas-dev": "libopenblas-pthread-dev (= 1) | libopenblas-serial-dev",
        "libopenblas-pthread-dev": "libopenblas0-pthread:amd64 (= 1), libc6-dev",
    }
    installed = {
        name: libraries.InstalledPackage(version="1", priority="optional", depends=text)
        for name, text in depends.items()
    }
    control = "Source: x\nBuild-Depends: cmake,\n  libonnx-dev (>= 1),\n  libabsent-dev,\n\nPackage: y\n"
    assert libraries.runtime_packages(control, installed) == {"libonnx1t64", "libopenblas0-pthread"}


def test_libraries_come_with_all_that_they_need_and_none_of_mpi_does(tmp_path: Path) -> None:
    """MPI needs its plugins and programs, too: a package of its libraries alone would not run."""
    debian = DebianRoot(path=tmp_path, fingerprint="", release="13")
    write(debian.source / "debian/control", "Build-Depends: libone-dev,\n libgrid-dev,\n\nPackage: x\n")
    installed = {
        f"{name}-dev": libraries.InstalledPackage(version="1", priority="optional", depends=f"{name}1 (= 1)")
        for name in ("libone", "libgrid", "libother")
    }
    needed = {
        "libone": {"libmid", "libc"}, "libmid": {"libdeep", "libone"}, "libdeep": set[str](),
        "libgrid": {"libmid"}, "libgridmpi": {"libwrap"}, "libwrap": {"libmpi.so.40"}, "libmpi.so.40": set[str](),
        "libother": set[str](),
    }  # fmt: skip
    owners = {"libone": "libone1", "libgrid": "libgrid1", "libgridmpi": "libgrid1", "libother": "libother1"}
    available = {name: libraries.LibraryFile(tmp_path / name, owners.get(name, "libx1")) for name in needed}
    contents = libraries.Libraries(available=available, needed=needed, installed=installed)
    assert libraries.select(debian, contents).keys() == {"libone", "libmid", "libdeep", "libgrid"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")
def test_libraries_of_one_package_find_each_other(tmp_path: Path) -> None:
    library = shared_library(tmp_path / "libone.so", "int one;")
    (tmp_path / "prefix").mkdir()
    debian = root.DebianRoot(path=tmp_path, fingerprint="", release="13")
    write(tmp_path / "usr/share/doc/libone1/copyright", "the licence")
    owned = {
        name: libraries.LibraryFile(library, owner)
        for name, owner in (
            ("libone.so.1", "libone1"),
            ("libonec.so.1", "libone1"),
            ("libtwo.so.1", "libtwo1"),
        )
    }
    libraries.fill(debian, owned, "one", tmp_path / "prefix")
    with opened(tmp_path / "prefix/lib/libone.so.1") as copied:
        assert [*copied.rpath()] == ["$ORIGIN"]
    (notice,) = (path for path in (tmp_path / "prefix/share").rglob("*") if path.is_file())
    assert notice == tmp_path / "prefix/share/one/libone1/copyright"
    assert notice.read_text() == "the licence"


def test_a_library_of_cuda_has_nvidias_version() -> None:
    of = {
        "12.4.5.8~12.4.1-2": "12.4.5.8",
        "11.1.1+~10.3.5.147~12.4.1-2": "10.3.5.147",
        "1:2.9.0+ds-2": "2.9.0",
    }
    assert {debian: cuda.upstream_version(debian) for debian in of} == of


@pytest.mark.parametrize("version", [None, "12.2.140~12.2.2-1", "12.40.1-1"])
def test_a_root_with_another_toolkit_is_refused(
    version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit = libraries.InstalledPackage(version=version or "", priority="optional", depends="")
    contents = libraries.Libraries(
        available={}, needed={}, installed={"nvidia-cuda-toolkit": toolkit} if version else {}
    )
    monkeypatch.setattr(libraries, "read", lambda _: contents)
    debian = root.DebianRoot(path=tmp_path, fingerprint="", release="13")
    with pytest.raises(ProviderError, match=r"12\.4"):
        cuda.packages(debian, {}, "12.4", "linux-64")


def cuda_packages(
    folder: Path, monkeypatch: pytest.MonkeyPatch, common: Sequence[str] = ()
) -> dict[str, LocalPackage]:
    """Return the packages of a root with two libraries of CUDA 12.4, by name; PyTorch needs the ``common`` ones."""
    installed = {}
    for name, version in {
        "nvidia-cuda-toolkit": "12.4.131~12.4.1-2", "libcusparse12": "12.3.1.170~12.4.1-2",
        "libnvjitlink12": "12.4.127~12.4.1-2",
    }.items():  # fmt: skip
        installed[name] = libraries.InstalledPackage(version=version, priority="optional", depends="")
    available = {
        "libcusparse.so.12": libraries.LibraryFile(folder / "libcusparse.so.12", "libcusparse12"),
        "libnvJitLink.so.12": libraries.LibraryFile(folder / "libnvJitLink.so.12", "libnvjitlink12"),
    }
    needed: dict[str, set[str]] = {"libcusparse.so.12": {"libnvJitLink.so.12"}, "libnvJitLink.so.12": set()}
    contents = libraries.Libraries(available=available, needed=needed, installed=installed)
    monkeypatch.setattr(libraries, "read", lambda _: contents)
    monkeypatch.setattr(libraries, "select", lambda *_: dict.fromkeys(common))
    table = {
        "libcusparse": ("libcusparse-dev", "libcusparse12"),
        "libnvjitlink": ("libnvjitlink-dev", "libnvjitlink12"),
    }
    debian = root.DebianRoot(path=folder, fingerprint="", release="13")
    return {package.name: package for package in cuda.packages(debian, table, "12.4", "linux-64")}


def test_each_library_of_cuda_has_a_package_and_one_for_development(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled: list[object] = []
    monkeypatch.setattr(libraries, "fill", lambda *words: filled.append(words[1:]))
    packages = cuda_packages(tmp_path, monkeypatch)
    packages["libcusparse"].fill(tmp_path / "env")
    library = libraries.LibraryFile(tmp_path / "libcusparse.so.12", "libcusparse12")
    assert filled == [({"libcusparse.so.12": library}, "libcusparse", tmp_path / "env")]
    versions = {"libcusparse": "12.3.1.170", "libnvjitlink": "12.4.127"}
    assert {name: packages[name].version for name in versions} == versions
    for name, version in versions.items():
        development = packages[f"{name}-dev"]
        assert development.depends == (f"{name} =={version}",)
        assert development.run_exports == {"weak": (f"{name} >={version},<13.0a0",)}
    assert packages["libcusparse"].depends == ("cuda-version 12.4.*", "libnvjitlink")
    assert packages["libnvjitlink"].depends == ("cuda-version 12.4.*",)


def test_a_library_that_pytorch_needs_is_in_the_package_of_its_libraries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = cuda_packages(tmp_path, monkeypatch, common=["libnvJitLink.so.12"])
    files = {name: packages[name].inputs["files"] for name in ("libcusparse", "libnvjitlink")}
    assert files == {"libcusparse": "libcusparse.so.12", "libnvjitlink": ""}
    assert packages["libnvjitlink"].depends == ("cuda-version 12.4.*", libraries.NAME)
    assert packages["libcusparse"].depends == ("cuda-version 12.4.*", libraries.NAME, "libnvjitlink")


def test_the_activated_nvcc_is_debian_s_with_the_compiler_that_it_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda_packages(tmp_path, monkeypatch)["cuda-nvcc_linux-64"].fill(tmp_path)
    (script,) = tmp_path.glob("etc/conda/activate.d/*.sh")
    names = ("CUDACXX", "CUDAHOSTCXX", "CUDA_HOME", "NVCC_APPEND_FLAGS")
    code = f". {script}; echo {' '.join(f'${name}' for name in names)}"
    environ = {"PATH": os.environ["PATH"], "CONDA_PREFIX": str(tmp_path)}
    printed = subprocess.run(["bash", "-euc", code], env=environ, capture_output=True, text=True, check=True)
    assert printed.stdout.split() == [
        "/usr/lib/nvidia-cuda-toolkit/bin/nvcc", "/usr/bin/g++-13", "/usr", "-ccbin=/usr/bin/g++-13"
    ]  # fmt: skip


@pytest.mark.skipif(machine_platform() != "linux-64", reason="names of linux-64")
@pytest.mark.parametrize(("name", "size"), [("linux_64_cpu_debian", 2), ("linux_64_cuda124_debian", 8)])
def test_a_plan_says_that_a_root_is_made_first_and_an_unfinished_one_is_none(
    tmp_path: Path, repository: Path, name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr(interpreters, "find", lambda report: {"3.13": None})
    config = load(repository, name)
    entry = root.root_inputs(cuda=config.cuda_version is not None).folder(tmp_path / "debian")
    (entry / "root").mkdir(parents=True)
    request = ProviderRequest(config=config, planned=[], cache=tmp_path, report=lambda _: None)
    for record in ("", "{", '{"release": "13"}'):
        (entry / "record.json").write_text(record)
        planned = choose_provider(request).survey()
        assert (planned.channels, planned.pending) == ((), Pending(bytes=size * 10**9))
        assert any(f"({size} GB)" in note for note in planned.notes)
        assert planned.pythons
        assert any("mmdebstrap" in note for note in planned.notes)


@pytest.mark.skipif(machine_platform() != "linux-64", reason="names of linux-64")
@pytest.mark.parametrize("version", [None, "12.4"])
def test_the_environment_is_that_of_the_root(
    version: str | None, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A root with CUDA is another one; the plan reads the packages made of it by their own inputs."""
    asked: list[object] = []
    made = DebianRoot(path=tmp_path / "r", fingerprint="f", release="13.1")
    own = {
        name: LocalPackage(name=name, version="1", platform="linux-64", inputs=inputs)
        for name, inputs in (("libs", {"root": "f"}), ("nvcc", {"root": "f", "flags": "-a"}), ("cudnn", {"wheel": "1"}))
    }  # fmt: skip
    toolchain = Toolchain(
        cc="gcc", cxx="g++", version="99.1.0", glibc="2.41", programs={}, libraries={}, digest="d"
    )

    def answered(answer: Any, *question: object) -> Any:
        asked.append(question)
        return answer

    def root_of(cache: Path, *_: object, cuda: bool = False, foreign: object = None) -> DebianRoot:
        asked.append((cache, cuda, foreign))
        return made

    def channel(request: object, *_: object, extra: list[LocalPackage], **more: Any) -> LocalChannel:
        asked.append(([package.name for package in extra], more["toolchain"], more["only"]))
        return LocalChannel(
            path=tmp_path, packages=tuple(extra), toolchain=toolchain, stand_ins=(), by_name=("frobnicate",)
        )

    for name in ("find", "make"):
        monkeypatch.setattr(root, name, root_of)
    monkeypatch.setattr(root, "enter", lambda path: [str(path)])
    monkeypatch.setattr(provider, "probe", lambda *, root, enter: answered(toolchain, root, enter))
    monkeypatch.setattr(libraries, "package", lambda *given: answered(own["libs"], *given))
    monkeypatch.setattr(cuda, "packages", lambda *given: answered([own["nvcc"]], *given))
    monkeypatch.setattr(
        DebianProvider, "nvidia", lambda _, needs, __, **how: answered([own["cudnn"]], needs, how)
    )
    monkeypatch.setattr(local_channel, "make", channel)
    monkeypatch.setattr(interpreters, "find", lambda report: {"3.13": None})
    config = load(repository, "linux_64_cuda124_debian" if version else "linux_64_cpu_debian")
    request = ProviderRequest(config=config, planned=[], cache=tmp_path, report=lambda _: None)
    for is_survey in (True, False):
        asker = choose_provider(request)
        environment = asker.survey() if is_survey else asker.provide()
        roots = [(tmp_path / "debian", version is not None, None)] * (1 + is_survey)
        table = catalogue.load()
        wheel_alone = {"survey": is_survey, "dependencies": False}  # cuBLAS, which it requires, is Debian's
        of_cuda: list[object] = []
        if version:
            of_cuda = [(made, table.debian_cuda, version, "linux-64"), ([table.debian_cudnn], wheel_alone)]
        names = ["libs", "nvcc", "cudnn"] if version else ["libs"]
        of_root = [(made.path, [str(made.path)]), (made, "2.41", "linux-64"), *of_cuda]
        assert asked == [*roots, *of_root, (names, toolchain, ("3.13",))]
        asked.clear()
        assert (environment.root, environment.source) == (made.path, made.source)
        assert environment.of_root == provider.keys_of_root(own[name] for name in names)
        assert {*environment.of_root} == {*names} - {"cudnn"}
        assert any("from pip's indexes by name: frobnicate" in note for note in environment.notes)
        assert environment.overrides["torch_source_path"] == (provider.SOURCE_INSIDE,)
        assert environment.overrides["c_compiler_version"] == ("99",)
        assert environment.virtual_packages == {"__glibc": "2.41", **({"__cuda": version} if version else {})}
    monkeypatch.setattr(root, "find", lambda *_, **__: None)
    planned = choose_provider(request).survey()
    assert planned.virtual_packages == ({"__cuda": version} if version else {})
    assert planned.overrides["torch_python_base"] == ("3.13",)


def test_a_root_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    monkeypatch.setattr(root, "install_command", str)
    monkeypatch.setattr(root, "_debootstrap", lambda folder, *_, **__: write(folder / "root" / "file"))
    monkeypatch.setattr(root, "_describe", lambda _: {"fingerprint": "f", "release": "13"})
    entry = root.root_inputs(cuda=False).folder(tmp_path)
    before = os.umask(0o077)
    try:
        with watched(tmp_path) as calls:
            made = root.make(tmp_path, lambda _: None)
    finally:
        os.umask(before)
    assert made.path == entry / "root"
    assert root.find(tmp_path) == made
    assert entry.stat().st_mode & 0o777 == 0o755, "of a shared cache"
    assert [call for call in calls if call.startswith("open") and call.endswith("/root/file")]
    assert unflushed(calls, entry.name) - {"lock"} == set()


@pytest.mark.parametrize(
    ("lacking", "packages"),
    [(("mmdebstrap", "bwrap"), "bubblewrap mmdebstrap"), (("bwrap",), "bubblewrap"), ((), "")],
)
def test_missing_programs_are_installed_by_their_packages(
    lacking: tuple[str, ...], packages: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root.shutil, "which", lambda name, **_: None if name in lacking else name)  # type: ignore[attr-defined]
    assert root.install_command().endswith(packages)
    assert bool(root.install_command()) == bool(lacking)


def test_a_root_that_this_machine_lacks_programs_for_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    monkeypatch.setattr(root, "install_command", lambda: "apt-get install bubblewrap")
    monkeypatch.setattr(root, "_debootstrap", lambda *_, **__: pytest.fail("begun"))
    with pytest.raises(ProviderError, match=r"^Debian configs need mmdebstrap and bwrap: ") as caught:
        root.make(tmp_path, lambda _: None)
    assert caught.value.remedy == "run: apt-get install bubblewrap"


@pytest.mark.parametrize("fails", [False, True])
def test_a_root_takes_the_place_of_unfinished_ones_when_it_is_whole(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = tmp_path / "0123"
    former = write(entry / "root/former")
    write(tmp_path / "tmp-of-a-killed-run/root/file")

    def debootstrap(folder: Path, *_: object, **__: object) -> None:
        assert [path.name for path in tmp_path.glob("tmp-*")] == [folder.name]
        assert former.exists()
        assert (folder / "sources.list").is_file()
        with pytest.raises(Timeout):  # another process would delete this folder
            FileLock(tmp_path / "lock").acquire(timeout=0)
        write(folder / "root/file")
        if fails:
            raise ProviderError("no mirror answers")

    monkeypatch.setattr(
        root, "root_inputs", lambda **_: SimpleNamespace(folder=lambda _: entry, mirrors=[], packages=[])
    )
    monkeypatch.setattr(root, "install_command", str)
    monkeypatch.setattr(root, "_debootstrap", debootstrap)
    monkeypatch.setattr(root, "_describe", lambda _: {"fingerprint": "f", "release": "13"})
    with pytest.raises(ProviderError, match="no mirror") if fails else nullcontext():
        root.make(tmp_path, lambda _: None)
    assert {path.name for path in tmp_path.iterdir()} == {"0123", "lock"}
    assert former.exists() == fails


@pytest.mark.parametrize("foreign", [None, ARM], ids=["native", "foreign"])
def test_a_root_is_found_for_its_processor(
    foreign: Foreign | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    entry = root.root_inputs(cuda=False, foreign=foreign).folder(tmp_path)
    write(entry / "record.json", '{"fingerprint": "f", "release": "13.1"}')
    assert root.find(tmp_path, foreign=foreign) is None, "a user deleted its folder"
    (entry / "root").mkdir()
    found = root.find(tmp_path, foreign=foreign)
    assert found == DebianRoot(path=entry / "root", fingerprint="f", release="13.1", foreign=foreign)
    processor = foreign.machine if foreign else platform.machine()
    assert found.libraries == entry / f"root/usr/lib/{processor}-linux-gnu", "wheels get libraries from there"
    assert root.find(tmp_path, foreign=ARM if foreign is None else None) is None


def test_a_root_that_is_being_made_ends_with_its_run_and_a_full_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(root, "run", lambda _, **flags: asked.append(flags))
    monkeypatch.setattr(root.apt, "options", list)  # type: ignore[attr-defined]
    root._debootstrap(tmp_path, ["gcc"], cuda=False, foreign=None)
    (flags,) = asked
    assert (flags["guarded"], flags["writes"]) == (True, tmp_path)
    assert flags["timeout"] > 3600, "a busy machine takes over half an hour"
    printed = (
        "I: running apt-get update...",
        "E: Unable to locate package gcc",
        "Err:1 http://mirror.invalid",
    )
    assert [bool(re.match(flags["relevant"], line)) for line in printed] == [False, True, True]


def test_a_root_that_another_process_has_just_made_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    monkeypatch.setattr(root, "_debootstrap", lambda *_, **__: pytest.fail("made again"))
    monkeypatch.setattr(root, "install_command", str)
    made = DebianRoot(path=tmp_path, fingerprint="f", release="13")
    answers = [None, made]
    monkeypatch.setattr(root, "_read", lambda *_: answers.pop(0))
    assert root.make(tmp_path, lambda _: None) == made


def test_a_linker_script_next_to_libraries_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = write(tmp_path / "libc.so", "/* GNU ld script */\nGROUP ( libc.so.6 )")
    monkeypatch.setattr(libraries, "run", lambda *_, **__: "libc6-dev\tamd64\t2.41\toptional\t\n")
    monkeypatch.setattr(libraries, "_owners", lambda *_: {script: "libc6-dev"})
    contents = libraries.read(DebianRoot(path=tmp_path, fingerprint="", release="13"))
    assert (list(contents.installed), contents.available) == (["libc6-dev"], {})


def test_libraries_that_every_system_has_and_those_for_development_are_not_packaged(tmp_path: Path) -> None:
    """libstdc++'s for development is older than the one that programs load."""
    priorities = dict.fromkeys(("libone1", "libtwo-dev", "libffi8"), "optional")
    priorities["libreq1"] = "required"
    for name in (*priorities, "libabsent1"):
        write(tmp_path / f"usr/lib/{name}.so.1")
        listed = f"/.\n/usr/lib\n/usr/lib/{name}.so.1\n/usr/share/doc/{name}/copyright\n"
        write(tmp_path / f"var/lib/dpkg/info/{name}:amd64.list", listed)
    installed = {
        name: libraries.InstalledPackage(version="1", priority=priority, depends="")
        for name, priority in priorities.items()
    }
    owners = libraries._owners(DebianRoot(path=tmp_path, fingerprint="", release="13"), installed)
    assert owners == {tmp_path / "usr/lib/libone1.so.1": "libone1"}


def test_of_two_libraries_of_one_name_openblas_is_packaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian has the slow reference BLAS next to it."""
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    owners = {folder / "openblas-pthread/libblas.so.3": "fast", folder / "blas/libblas.so.3": "slow"}
    elf = SimpleNamespace(soname=lambda: "libblas.so.3", needed=lambda: ())
    monkeypatch.setattr(libraries, "opened", lambda _: nullcontext(elf))
    monkeypatch.setattr(libraries, "run", lambda *_, **__: "")
    monkeypatch.setattr(libraries, "_owners", lambda *_: owners)
    contents = libraries.read(DebianRoot(path=tmp_path, fingerprint="", release="13"))
    assert contents.available["libblas.so.3"].owner == "fast"


def test_a_root_without_a_library_that_a_package_is_made_of_is_an_error(tmp_path: Path) -> None:
    debian = DebianRoot(path=tmp_path, fingerprint="", release="13")
    write(debian.source / "debian/control", "Build-Depends: libone-dev,\n\n")
    other = {"libother.so.1": libraries.LibraryFile(tmp_path / "libother.so.1", "libother1")}
    contents = libraries.Libraries(available=other, needed={"libother.so.1": set()}, installed={})
    with pytest.raises(ProviderError, match="no run-time libraries of PyTorch"):
        libraries.select(debian, contents)
    describer = cuda._Describer(
        root=debian, contents=contents, conda_of={"libother.so.1": "libother"}, common=frozenset(), cuda="12.4",
        platform="linux-64",
    )  # fmt: skip
    with pytest.raises(ProviderError, match="no library of libone1, libtwo1"):
        describer.runtime("libone", ["libone1", "libtwo1"])
    with pytest.raises(ProviderError, match="no library of libone1"):
        describer.runtime("libone", ["libone1"])


@pytest.mark.skipif(machine_platform() != "linux-64", reason="names of linux-64")
def test_a_config_that_another_processor_compiles_is_refused(tmp_path: Path, repository: Path) -> None:
    config = load(repository, "linux_aarch64_cpu_debian")
    native = replace(config, build_platform=config.platform)
    request = ProviderRequest(config=native, planned=[], cache=tmp_path, report=lambda _: None)
    with pytest.raises(ProviderError, match="built on linux-aarch64 only; this machine is linux-64"):
        choose_provider(request).survey()


@pytest.mark.parametrize(("release", "version"), [("13.1", "13.1"), ("13", "13"), ("trixie/sid", "0")])
def test_libraries_of_debian_have_its_release_as_their_version(
    release: str, version: str, tmp_path: Path
) -> None:
    made = libraries.package(DebianRoot(path=tmp_path, fingerprint="x", release=release), "2.41", "linux-64")
    assert made.version == version


def test_a_root_is_made_with_this_machine_s_variables_and_without_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among them a proxy."""
    program(tmp_path / "bin/unshare", 'while [ "$1" != mmdebstrap ]; do shift; done; exec "$@"')
    program(tmp_path / "bin/mmdebstrap", f"env > {tmp_path}/variables")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    for name in ("DEBIAN_FRONTEND", "LC_ALL"):
        monkeypatch.setenv(name, "the user's")
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setattr(root.apt, "options", list)  # type: ignore[attr-defined]
    root._debootstrap(tmp_path, ["gcc"], cuda=False, foreign=None)
    variables = (tmp_path / "variables").read_text().splitlines()
    assert {"http_proxy=http://proxy.invalid:3128", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8"} <= {
        *variables
    }


@pytest.mark.parametrize("foreign", [None, ARM], ids=["native", "foreign"])
@pytest.mark.parametrize("with_cuda", [False, True], ids=["cpu", "cuda"])
def test_a_root_is_made_of_all_that_its_key_has(
    with_cuda: bool, foreign: Foreign | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(words: Sequence[str], **_: object) -> str:
        asked.append(words)
        return ""

    asked: list[Sequence[str]] = []
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    monkeypatch.setattr(root, "install_command", str)
    monkeypatch.setattr(root.apt, "options", list)  # type: ignore[attr-defined]
    monkeypatch.setattr(root, "run", run)
    monkeypatch.setattr(root, "_describe", lambda _: {"fingerprint": "f", "release": "13"})
    inputs = root.root_inputs(cuda=with_cuda, foreign=foreign)
    made = root.make(tmp_path, lambda _: None, cuda=with_cuda, foreign=foreign)
    (words,) = asked
    assert f"--include={','.join(inputs.packages)}" in words
    assert (made.path.parent / "sources.list").read_text().splitlines() == [*inputs.mirrors]
    hooks = "\n".join(words)
    assert ("cudnn" in hooks, "--architectures=amd64,arm64" in words) == (with_cuda, foreign is not None)
    # of the older release Pythons alone: apt would take libraries that this release lacks, too
    pinned = "Pin: release n=bookworm\\nPin-Priority: -1" in hooks
    assert (pinned, "apt-get build-dep" in hooks) == (foreign is not None, foreign is None)
    other = root.make(tmp_path, lambda _: None, cuda=not with_cuda, foreign=foreign)
    assert other.path != made.path
