"""Compiling for another processor: its Debian root, its Pythons, its compilers, and the channel for both platforms."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_files import program, shared_library, write

from groundwork.errors import ProviderError
from groundwork.machine import machine_platform
from groundwork.network import resolver
from groundwork.network.index import Configured, best_first, linked
from groundwork.network.resolver import Target, marker_environment
from megabuild.configs import config as configs
from megabuild.configs.config import Config, load
from megabuild.configs.platforms import Platforms
from megabuild.configs.provider_name import ProviderName
from megabuild.configs.render import PlannedPackage
from megabuild.providers import local_channel
from megabuild.providers.debian import cross, foreign, libraries, root
from megabuild.providers.debian.cross import CrossDebianProvider
from megabuild.providers.debian.foreign import PYTHONS, PYTHONS_FOLDER, Foreign
from megabuild.providers.debian.provider import SOURCE_INSIDE
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.environment import Environment, ProviderRequest
from megabuild.providers.local import compilers, cross_python, interpreters
from megabuild.providers.local.compilers import Toolchain
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local_channel import LocalChannel, Side
from megabuild.providers.select import choose_provider

CROSS = Platforms(build="linux-64", target="linux-aarch64")
ARM = Foreign(arch="arm64", native="amd64", triplet="aarch64-linux-gnu")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (configs, cross, compilers):
        monkeypatch.setattr(module, "machine_platform", lambda: "linux-64")


def toolchain(name: str, triplet: str = "") -> Toolchain:
    prefix = f"{triplet}-" if triplet else ""
    return Toolchain(
        cc=f"/usr/bin/{prefix}gcc-14",
        cxx=f"/usr/bin/{prefix}g++-14",
        version="14.2.0",
        glibc="2.41",
        programs={"AR": f"/usr/bin/{prefix}ar", "RANLIB": f"/usr/bin/{prefix}ranlib"},
        libraries={"libgcc": Path(name), "libstdcxx": Path(name), "libgomp": Path(name)},
        digest=name,
        triplet=triplet,
    )


@pytest.mark.parametrize("failing", ["", "the download", "a.deb", "b.deb"])
def test_a_package_that_cannot_be_unpacked_ends_the_root(failing: str, tmp_path: Path) -> None:
    program(tmp_path / "bin/apt-get", "exit 100" if failing == "the download" else "touch a.deb b.deb")
    program(tmp_path / "bin/dpkg-deb", f'[ "$2" != "{failing}" ]')
    environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    (tmp_path / "pythons").mkdir()
    for command in (*ARM.unpack_pythons(), ARM.unpack_headers()):
        inside = command.replace(f"/{PYTHONS_FOLDER}", f"{tmp_path}/pythons")
        done = subprocess.run(["sh", "-c", inside], env=environ, capture_output=True, check=False)
        assert (done.returncode == 0) == (not failing), inside
    if not failing:  # the root's fingerprint has them
        assert (tmp_path / "pythons/packages").read_text().split() == ["a.deb", "b.deb"] * 3


@pytest.mark.parametrize("command", [root._FETCH, root._UNPACK_CUDNN], ids=["source", "cuDNN"])
def test_each_command_that_fails_ends_the_root(command: str, tmp_path: Path) -> None:
    """In the hooks that fetch the source and unpack cuDNN; the files go to a folder in place of /."""
    makes = {"apt-get": "touch pytorch_1.dsc pytorch_1.tar.xz libcudnn-frontend-dev_1.deb"}
    inside = command.replace(f"/{root.SOURCE_FOLDER}", f"{tmp_path}/source").replace("/tmp", str(tmp_path))
    inside = inside.replace(f"/{PYTHONS_FOLDER}", f"{tmp_path}/source")
    used = [
        name for name in ("mkdir", "apt-get", "dpkg-source", "sha256sum", "dpkg-deb", "rm") if name in command
    ]
    for failing in ("", *used):
        for name in used:
            then = "exit 3" if name == failing else makes.get(name, "")
            if name == "mkdir" and not then:
                then = f'exec {shutil.which(name)} "$@"'
            program(tmp_path / "bin" / name, then)
        environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        command_line = ["sh", "-c", inside]
        done = subprocess.run(command_line, cwd=tmp_path, env=environ, capture_output=True, check=False)
        assert (done.returncode == 0) == (not failing), failing
        shutil.rmtree(tmp_path / "source", ignore_errors=True)


@pytest.mark.parametrize(
    ("command", "made", "before"),
    [
        (root._UNPACK_CUDNN, "libcudnn-frontend-dev_1.11-2_all.deb", ""),
        (ARM.unpack_headers(), "libideep-dev_3.7-1_amd64.deb", "libpython3.13-dev_3.13.5-2_arm64.deb"),
    ],
    ids=["cuDNN", "headers"],
)
def test_headers_that_are_only_unpacked_have_versions(
    command: str, made: str, before: str, tmp_path: Path
) -> None:
    """dpkg does not know them. Pythons, which are unpacked before, are packages of the local channel."""
    program(tmp_path / "bin/apt-get", f"touch {made}")
    program(tmp_path / "bin/dpkg-deb", "")
    environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    if before:
        write(tmp_path / foreign.UNPACKED, f"{before}\n")
    assert foreign.unpacked_headers(tmp_path) == {}
    inside = command.replace("cd /tmp", f"cd {tmp_path}")
    inside = inside.replace(f"/{PYTHONS_FOLDER}", f"{tmp_path}/{PYTHONS_FOLDER}")
    subprocess.run(["sh", "-c", inside], env=environ, check=True)
    name, _, version = made.removesuffix(".deb").partition("_")
    assert foreign.unpacked_headers(tmp_path) == {name: version}


def test_debian_cross_compiles_for_arm_and_for_no_other_processor() -> None:
    assert Foreign.of(Platforms.native("linux-64")) is None
    assert Foreign.of(CROSS) == ARM
    for platforms in (Platforms(build="linux-aarch64", target="linux-64"), replace(CROSS, build="osx-64")):
        with pytest.raises(ProviderError, match="no cross compilers of Debian for "):
            Foreign.of(platforms)


def test_its_root_has_programs_of_this_machine_and_libraries_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "file:///mirror/debian")
    inputs = root.root_inputs(cuda=False, foreign=ARM)
    packages = set(inputs.packages)
    assert {"cmake", "protobuf-compiler", "qemu-user", "crossbuild-essential-arm64", "libssl3t64"} < packages
    assert {"libopenblas-dev:arm64", "libonnx-dev:arm64", "libdnnl-dev:arm64", "libssl3t64:arm64"} < packages
    assert "libopenblas-dev" not in packages
    binaries = {line.split()[2] for line in inputs.mirrors if line.startswith("deb ")}
    assert binaries == {"bookworm", "trixie"}
    older, newer = ARM.unpack_pythons()
    assert "libpython3.11:arm64/bookworm" in older, "apt takes nothing else from there"
    assert "libpython3.13:arm64/trixie" in newer
    native = root.root_inputs(cuda=False)
    assert inputs.folder(tmp_path) != native.folder(tmp_path)
    assert "qemu-user" not in native.packages
    assert {"cmake", "libopenblas-dev", "libssl3t64"} < {*native.packages}
    monkeypatch.setitem(PYTHONS, "3.13", "forky")
    assert root.root_inputs(cuda=False, foreign=ARM).digest != inputs.digest


@pytest.mark.parametrize("name", ["arch", "native", "triplet"])
def test_a_root_for_or_of_another_processor_is_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines of several processors may share a cache."""
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "file:///mirror/debian")
    before = root.root_inputs(cuda=False, foreign=ARM).digest
    other: dict[str, Any] = {name: "riscv64"}
    assert root.root_inputs(cuda=False, foreign=replace(ARM, **other)).digest != before


@pytest.mark.parametrize("name", ["_TOOLS", "_LIBRARIES", "_PARTS", "_HEADERS"])
def test_a_root_of_another_list_of_packages_is_another(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that apt installs, and those that are unpacked alone."""
    monkeypatch.setenv("MEGABUILD_DEBIAN_MIRROR", "file:///mirror/debian")
    before = root.root_inputs(cuda=False, foreign=ARM).digest
    monkeypatch.setattr(foreign, name, (*getattr(foreign, name), "further"))
    assert root.root_inputs(cuda=False, foreign=ARM).digest != before


@pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")
def test_its_libraries_are_the_other_processors_although_the_root_has_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool of this machine needs its own copy of a library, under the same soname."""
    listed = []
    for arch, triplet in {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}.items():
        for name in ("protobuf", "onnx"):
            path = Path("usr/lib") / triplet / f"lib{name}.so.1"
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            shared_library(tmp_path / path, "int one;", f"-Wl,-soname,lib{name}.so.1")
            write(tmp_path / f"var/lib/dpkg/info/lib{name}1:{arch}.list", f"/{path}\n")
            listed.append(f"lib{name}1\t{arch}\t1.0+{arch}\toptional\tlibc6")
        write(
            tmp_path / f"var/lib/dpkg/info/libtool-of-{arch}.list", f"/usr/lib/{triplet}/libprotobuf.so.1\n"
        )
        listed.append(f"libtool-of-{arch}\t{arch}\t1.0\toptional\t")
    listed.append("libonnx-data\tall\t1.0\toptional\t")
    monkeypatch.setattr(libraries, "run", lambda *_, **__: "\n".join(listed))
    found = libraries.read(DebianRoot(path=tmp_path, fingerprint="f", release="13.1", foreign=ARM))
    assert {library.path.parent.name for library in found.available.values()} == {ARM.triplet}
    assert found.available.keys() == {"libprotobuf.so.1", "libonnx.so.1"}
    assert {each.version for each in found.installed.values()} == {"1.0", "1.0+arm64"}
    assert "libtool-of-amd64" not in found.installed
    native = libraries.read(DebianRoot(path=tmp_path, fingerprint="f", release="13.1"))
    assert "libtool-of-amd64" in native.installed


def python_files(folder: Path) -> None:
    for python, version in {"3.11": "3.11.2+", "3.13": "3.13.5"}.items():
        header = folder / PYTHONS_FOLDER / f"python{python}/usr/include/python{python}/patchlevel.h"
        write(header, f'/* x */\n#define PY_VERSION      \t"{version}"\n')


def test_pythons_are_described_without_running_them(tmp_path: Path) -> None:
    python_files(tmp_path)
    found = ARM.interpreters(tmp_path)
    assert {name: each.version for name, each in found.items()} == {"3.11": "3.11.2", "3.13": "3.13.5"}
    assert found["3.13"].soabi == "cpython-313-aarch64-linux-gnu"
    write(next(tmp_path.rglob("patchlevel.h")), "")
    with pytest.raises(ProviderError, match="no version of Python"):
        ARM.interpreters(tmp_path)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            Target(version="3.12.4", executable=Path("/py")),
            {"--python=/py", "--python-version=3.12.4", "--no-deps"},
        ),
        (
            Target(version="3.13.1", executable=Path("/py"), free_threaded=True),
            {"--python=/py", "--no-deps"},
        ),
        (
            Target(version="3.12.4", executable=Path("/py"), machine="aarch64"),
            {f"--python={sys.executable}", "--python-version=3.12.4", "--no-deps",
             "--python-platform=aarch64-unknown-linux-gnu"},
        ),
    ],
    ids=["own", "free-threaded", "another machine's"],
)  # fmt: skip
def test_wheels_are_resolved_for_the_python_that_gets_them(
    target: Target, words: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/uv")
    alone, all_of_them = (
        resolver._command(target, tmp_path, dependencies=dependencies) for dependencies in (False, True)
    )
    assert {word for word in alone if word.startswith(("--python", "--no-deps"))} == words
    assert [*all_of_them, "--no-deps"] == alone
    assert f"--cache-dir={tmp_path}" in alone
    offers = []
    for machine in ("x86_64", "aarch64"):
        abi = f"cp{target.python.replace('.', '')}"
        name = f"a-1-cp{target.version[0]}{target.version[2:4]}-{abi}-manylinux2014_{machine}.whl"
        offers.append({"url": f"https://index.invalid/{name}", "hashes": {"sha256": "1" * 64}})
    if target.machine or machine_platform() == "linux-64":
        chosen = resolver._best(offers, target, Configured())
        assert chosen.name.endswith(f"{target.machine or 'x86_64'}.whl")


def test_a_python_of_another_machine_gets_that_machines_wheels(tmp_path: Path) -> None:
    python_files(tmp_path)
    python = ARM.interpreters(tmp_path)["3.13"]
    names = [f"numpy-2.2.0-cp313-cp313-manylinux_2_28_{name}.whl" for name in ("x86_64", "aarch64")]
    names.append("numpy-2.1.0-py3-none-any.whl")
    offered = [linked(f"https://a.example/{name}", {}) for name in names]
    fitting = best_first([file for file in offered if file], "3.13", python.platforms)
    assert [file.name for file in fitting] == names[1:]
    markers = marker_environment("3.13.5", python.machine)
    assert markers["platform_machine"] == "aarch64"
    versions = {name: value for name, value in markers.items() if name.endswith("_version")}
    assert (versions["python_version"], versions["python_full_version"]) == ("3.13", "3.13.5")
    assert versions["implementation_version"] == "3.13.5"


def test_a_cross_compiler_is_a_program_of_the_build_and_of_tests_and_names_its_machine() -> None:
    native = toolchain("native")
    packages = compilers.cross_packages(toolchain("arm", ARM.triplet), native, CROSS)
    places = {(package.name, package.subdir) for package in packages}
    for name in ("gcc_linux-aarch64", "gxx_linux-aarch64", "binutils_linux-aarch64", "libgcc", "libstdcxx"):
        assert {(name, "linux-64"), (name, "linux-aarch64")} <= places
    assert ("gcc_linux-64", "linux-64") not in places
    libraries = {package.subdir: package.inputs for package in packages if package.name == "libgcc"}
    assert libraries == {"linux-64": {"compiler": "native"}, "linux-aarch64": {"compiler": "arm"}}
    (gcc,) = (
        package for package in packages if (package.name, package.subdir) == ("gcc_linux-aarch64", "linux-64")
    )
    script = gcc.inputs["activate"]
    for line in (
        'export CC="/usr/bin/aarch64-linux-gnu-gcc-14"',
        'export CC_FOR_BUILD="/usr/bin/gcc-14"',
        'export HOST="aarch64-conda-linux-gnu"',
        'export BUILD="x86_64-conda-linux-gnu"',
        "-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64",
    ):
        assert line in script
    other = compilers.cross_packages(toolchain("arm", ARM.triplet), replace(native, digest="x"), CROSS)
    assert gcc.key not in {package.key for package in other}, "it also names the native compiler"


def test_a_natively_compiling_toolchain_is_described_as_before() -> None:
    script = compilers.packages(toolchain("native"), "linux-64")[2].inputs["activate"]
    assert "CMAKE_SYSTEM_NAME" not in script
    assert 'export BUILD="x86_64-conda-linux-gnu"' in script


def test_the_script_of_cross_python_does_nothing_outside_a_build(tmp_path: Path) -> None:
    package = cross_python.package(CROSS)
    assert (package.name, package.subdir) == ("cross-python_linux-aarch64", "linux-64")
    package.fill(tmp_path)
    (script,) = tmp_path.rglob("*.sh")
    subprocess.run(["sh", "-euc", f". '{script}'"], check=True, env={"PATH": "/usr/bin:/bin"})
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_another_script_of_cross_python_is_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cross_python.package(CROSS).depends == ("crossenv", "python")
    former = cross_python.package(CROSS).key
    assert cross_python.package(CROSS).key == former
    monkeypatch.setattr(cross_python, "_SCRIPT", "another")
    assert cross_python.package(CROSS).key != former


#: crossenv's programs: the script that starts the build's Python, and the module that changes sys.
CROSSENV = """\
shift 3
mkdir -p "$1/lib" "$1/cross/bin"
echo "executable = '/another'" >"$1/lib/sys-patch.py"
{ echo "extra_envs = ['x']"; echo "paths = ['$1/lib', '/more']"; } >"$1/cross/bin/python"
echo "$*" >"$1/asked"
"""


def test_a_build_s_python_answers_for_the_other_machine_and_packages_stay_as_they_are(tmp_path: Path) -> None:
    """An environment's files may be links into a cache that other builds use."""
    cross_python.package(CROSS).fill(tmp_path)
    (script,) = tmp_path.rglob("*.sh")
    cached = write(tmp_path / "cache/python3.13", "a program of the other machine")
    host = tmp_path / "host"
    build = tmp_path / "build"
    facts = write(host / "lib/python3.13/_sysconfigdata__aarch64-linux-gnu.py")
    write(host / "lib/python3.13/_sysconfigdata__x86_64-linux-gnu.py")
    program(build / "bin/python3.13", CROSSENV)
    (host / "bin").mkdir()
    os.link(cached, host / "bin/python3.13")
    for prefix in (host, build):
        (prefix / "bin/python").symlink_to("python3.13")
    environ = {"PATH": "/usr/bin:/bin", "CONDA_BUILD": "1", "PREFIX": str(host), "BUILD_PREFIX": str(build)}
    environ |= {"CC": "arm-gcc", "CXX": "arm-g++", "AR": "arm-ar"}
    for _ in range(2):  # conda activates an environment again in each subshell
        subprocess.run(["sh", "-euc", f". '{script}'"], check=True, env=environ)
    assert cached.read_text() == "a program of the other machine"
    made = host / "bin/python3.13"
    assert made.read_text().splitlines() == [
        "extra_envs = []",
        f"paths = ['{build}/venv/lib', '{build}/lib/python3.13/site-packages', '/more']",
    ]
    assert os.access(host / "bin/python", os.X_OK)
    assert (build / "venv/lib/sys-patch.py").read_text() == f"executable = '{host}/bin/python'\n"
    asked = (build / "venv/asked").read_text()
    assert f"--sysconfigdata-file {facts} --machine aarch64 --cc arm-gcc --cxx arm-g++ --ar arm-ar" in asked


@pytest.mark.parametrize("failing", ["crossenv", "sed", "the second sed", "readlink", "chmod", ""])
def test_a_python_that_cannot_answer_for_the_other_machine_ends_the_build(
    failing: str, tmp_path: Path
) -> None:
    """The engine sources the script under "set -e"; the build would go on with an empty program as its Python."""
    cross_python.package(CROSS).fill(tmp_path)
    (script,) = tmp_path.rglob("*.sh")
    host = tmp_path / "host"
    build = tmp_path / "build"
    write(host / "lib/python3.13/_sysconfigdata__aarch64-linux-gnu.py")
    program(build / "bin/python3.13", "exit 3" if failing == "crossenv" else CROSSENV)
    write(host / "bin/python3.13", "a program of the other machine")
    for prefix in (host, build):
        (prefix / "bin/python").symlink_to("python3.13")
    ends = {"sed": '[ "$1" != -i ] || exit 3', "the second sed": '[ "$1" = -i ] || exit 3', "": "exit 0"}
    name = failing.rpartition(" ")[2] or "unused"
    program(tmp_path / "bin" / name, f'{ends.get(failing, "exit 3")}\nexec /bin/{name} "$@"')
    environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "CONDA_BUILD": "1", "PREFIX": str(host)}
    environ |= {"BUILD_PREFIX": str(build), "CC": "arm-gcc", "CXX": "arm-g++", "AR": "arm-ar"}
    command = ["sh", "-euc", f". '{script}'; echo resumes"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == ((3, "") if failing else (0, "resumes\n")), done.stderr


class World:
    """The provider's answers from a root that does not exist."""

    def __init__(self, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
        self.made: dict[str, Any] = {}
        self.root = DebianRoot(path=tmp_path, fingerprint="f", release="13.1", foreign=ARM)
        python_files(tmp_path)
        native = {python: self.interpreter(python) for python in ("3.10", "3.11", "3.12", "3.13")}
        patch.setattr(interpreters, "find", lambda report: native)
        patch.setattr(root, "find", lambda cache, **_: self.root)
        patch.setattr(root, "make", lambda cache, report, **_: self.root)
        patch.setattr(root, "enter", lambda path: [])
        patch.setattr(cross, "probe", self.probe)
        patch.setattr(local_channel, "make_of_sides", self.channel)
        self.folder = tmp_path / "channel"
        self.folder.mkdir()

    def probe(self, *, root: Path, enter: object, triplet: str = "") -> Toolchain:
        assert root == self.root.path
        return toolchain(triplet or "native", triplet)

    def interpreter(self, python: str) -> Interpreter:
        usr = Path("/usr")
        return Interpreter(
            executable=usr / "bin" / f"python{python}", version=f"{python}.1", soabi="x", prefix=usr, stdlib=usr,
            include=usr, library_folder=usr, multiarch="x86_64-linux-gnu",
        )  # fmt: skip

    def channel(self, request: object, sides: Sequence[Side], **given: object) -> LocalChannel:
        self.made = {"sides": {side.platform: side for side in sides}, **given}
        return LocalChannel(
            path=self.folder, packages=(), toolchain=sides[-1].toolchain, stand_ins=(), by_name=()
        )


def asked(config: Config, tmp_path: Path, **changes: Any) -> Environment:
    request = ProviderRequest(config=config, planned=(), cache=tmp_path, report=lambda _: None, **changes)
    provider = choose_provider(request)
    assert isinstance(provider, CrossDebianProvider)
    return provider.provide()


@pytest.mark.parametrize("name", ["linux_aarch64_cpu", "linux_aarch64_cpu_debian"])
def test_a_cross_build_has_the_pythons_that_both_machines_have(
    name: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    config = load(repository, name)
    is_rehearsal = config.provider is not ProviderName.DEBIAN
    made = asked(config, tmp_path, rehearsal=is_rehearsal)
    assert made.pythons == ("3.11", "3.13")
    assert "bookworm" in made.left_out["3.12"]
    assert made.overrides["torch_python_base"] == ("3.13",)
    assert made.virtual_packages == {"__glibc": "2.41"}
    assert (made.root, made.emulator) == (tmp_path, tmp_path / "usr/bin/qemu-aarch64")
    assert (made.source is None, "torch_source_path" in made.overrides) == (is_rehearsal, not is_rehearsal)
    sides: Mapping[str, Side] = world.made["sides"]
    assert {name: side.toolchain.triplet for name, side in sides.items()} == {
        "linux-64": "",
        "linux-aarch64": "aarch64-linux-gnu",
    }
    assert sides["linux-64"].interpreters["3.13"].machine == ""
    assert sides["linux-aarch64"].interpreters["3.13"].machine == "aarch64"
    assert sides["linux-aarch64"].running["3.13"].machine == ""
    subdirs = {package.subdir for package in sides["linux-64"].own}
    assert subdirs == {"linux-64", "noarch"}
    monkeypatch.setattr(root, "find", lambda *_, **__: None)
    request = ProviderRequest(
        config=config, planned=(), cache=tmp_path, report=lambda _: None, rehearsal=is_rehearsal
    )
    planned = choose_provider(request).survey()
    assert (planned.channels, planned.pythons, planned.left_out) == ((), made.pythons, made.left_out)


@pytest.mark.parametrize("surveyed", [True, False])
def test_a_cross_build_has_the_root_and_the_packages_of_both_platforms(
    surveyed: bool, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    asked: list[object] = []

    def root_of(cache: Path, *_: object, cuda: bool = False, foreign: object = None) -> DebianRoot:
        asked.append((cache, cuda, foreign))
        return world.root

    def channel(request: object, sides: Sequence[Side], **given: object) -> LocalChannel:
        made = world.channel(request, sides, **given)
        return replace(made, packages=tuple(package for side in sides for package in side.own))

    for name in ("find", "make"):
        monkeypatch.setattr(root, name, root_of)
    monkeypatch.setattr(local_channel, "make_of_sides", channel)
    needing = PlannedPackage(
        name="a", version="1", build_string="0", build_number=0, file_name="a-1-0.conda", subdir="linux-aarch64",
        python="3.13", build=("cmake",), host=("debian-torch-libs", "fmt"), run=(), constraints=(), test=("pytest",),
        staging_build=("gcc",), staging_host=("zlib",),
    )  # fmt: skip
    config = load(repository, "linux_aarch64_cpu_debian")
    request = ProviderRequest(config=config, planned=(needing,), cache=tmp_path, report=lambda _: None)
    asker = choose_provider(request)
    made = asker.survey() if surveyed else asker.provide()
    assert asked == [(tmp_path / "debian", False, ARM)] * (1 + surveyed)
    sides: Mapping[str, Side] = world.made["sides"]
    assert [*sides] == ["linux-64", "linux-aarch64"], "the compiler of the last one is the channel's"
    assert world.made["only"] == ("3.13",)
    assert {*sides["linux-64"].needs} == {"cmake", "gcc", "crossenv"}
    assert {*sides["linux-aarch64"].needs} == {"debian-torch-libs", "fmt", "pytest", "zlib"}
    for platform, side in sides.items():
        assert {package.subdir for package in side.own} <= {platform, "noarch"}
    (libs,) = (package for package in sides["linux-aarch64"].own if package.name == libraries.NAME)
    assert libs.platform == "linux-aarch64"
    assert {*made.of_root} == {libraries.NAME}
    assert made.overrides["torch_source_path"] == (SOURCE_INSIDE,)
    assert made.overrides["torch_python_base"] == ("3.13",)


def test_a_machine_that_cannot_cross_compile_says_so(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    World(tmp_path, monkeypatch)
    with pytest.raises(ProviderError, match="Debian has no cross compiler for CUDA"):
        asked(load(repository, "linux_aarch64_cuda130"), tmp_path, rehearsal=True)
    config = load(repository, "linux_aarch64_cpu")
    monkeypatch.setattr(cross, "machine_platform", lambda: "osx-arm64")
    with pytest.raises(ProviderError, match="cross-compiled on linux-64 only; this machine is osx-arm64"):
        asked(config, tmp_path, rehearsal=True)
    monkeypatch.setattr(cross, "machine_platform", lambda: "linux-64")
    monkeypatch.setattr(interpreters, "find", lambda report: {"3.12": None})
    with pytest.raises(ProviderError, match="none of this machine's Pythons") as refused:
        asked(config, tmp_path, rehearsal=True)
    assert refused.value.remedy == "run: uv python install 3.13"
