"""The system's compilers as packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from small_files import program as make_program

from groundwork.errors import ProviderError
from megabuild.providers.local import compilers
from megabuild.providers.local.compilers import Toolchain, probe
from megabuild.providers.local.package import LocalPackage

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

_PROGRAM = '#include <iostream>\nint main() { std::cout << "hello " << __VERSION__ << std::endl; }\n'


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    """The compilers of this machine."""
    return probe()


@pytest.fixture(scope="module")
def packages(toolchain: Toolchain) -> dict[str, LocalPackage]:
    """Their packages by name."""
    return {package.name: package for package in compilers.packages(toolchain, "linux-64")}


@pytest.mark.parametrize("missing", ["gcc", "g++"])
def test_a_missing_compiler_is_named(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in {"sh", "gcc", "g++"} - {missing}:
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match=rf"^{re.escape(missing)}: not installed$"):
        probe()


@pytest.mark.parametrize("failing", ["gcc", "g++", "getconf"])
def test_a_program_that_does_not_run_is_told(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler may lack a library of its own; its version would be empty."""
    for name in ("gcc", "g++", "getconf"):
        then = f"echo {name}: libmpc.so.3: cannot open shared object file >&2; exit 127"
        make_program(tmp_path / name, then if name == failing else f'exec {shutil.which(name)} "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ProviderError, match=r"^looking for gcc and g\+\+: (.|\n)*libmpc.so.3: cannot open"):
        probe()


#: Answers as GCC: its version, and where its programs and libraries are.
_GCC = """
case "$1" in
    -dumpfullversion) echo {version} ;;
    -print-prog-name={lacking}) echo {lacking} ;;
    -print-file-name={lacking}*) echo "$PWD/nowhere/{lacking}.so.1" ;;
    *) exec {real} "$@" ;;
esac
"""


def _install(folder: Path, monkeypatch: pytest.MonkeyPatch, lacking: str = "none", **versions: str) -> None:
    for name, real in (("gcc", "gcc"), ("gxx", "g++")):
        text = _GCC.format(version=versions.get(name, "14.2.0"), lacking=lacking, real=shutil.which(real))
        make_program(folder / real, text)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize("versions", [("13.3.0", "14.2.0"), ("14.2.0", "14.1.0")])
def test_gcc_and_gxx_of_different_versions_are_refused(
    versions: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, monkeypatch, gcc=versions[0], gxx=versions[1])
    with pytest.raises(ProviderError) as refused:
        probe()
    assert refused.value.message == f"gcc {versions[0]} and g++ {versions[1]}: versions differ"
    assert refused.value.remedy == "install the same version of gcc and g++"
    assert refused.value.exit_code == 5


def test_gcc_and_gxx_of_one_version_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, monkeypatch)
    assert (probe().version, probe().triplet) == ("14.2.0", "")
    for name in ("gcc", "g++"):
        (tmp_path / f"arm-{name}").symlink_to(name)
    assert probe(triplet="arm").triplet == "arm", "its builds are for another machine"


@pytest.mark.parametrize("part", ["cc1plus", "libgomp"])
def test_a_missing_part_of_a_compiler_is_named(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, monkeypatch, lacking=part)
    with pytest.raises(ProviderError) as refused:
        probe()
    assert refused.value.message == f"{tmp_path}/g++: parts are missing: {part}"
    assert "g++" in refused.value.remedy
    assert refused.value.exit_code == 5


@pytest.mark.parametrize("part", ["cc1", "cc1plus", "as", "ld"])
def test_another_part_of_a_compiler_is_another_toolchain(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_program(tmp_path / "parts" / part, "exit 0")
    for name in ("gcc", "g++"):
        text = f'[ "$1" != -print-prog-name={part} ] || exec echo {other}\nexec {shutil.which(name)} "$@"'
        make_program(tmp_path / name, text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    first = probe().digest
    make_program(other, "exit 1")
    assert probe().digest != first


def _activated(packages: dict[str, LocalPackage], prefix: Path, script: str, **variables: str) -> str:
    for name in ("binutils_linux-64", "gcc_linux-64", "gxx_linux-64"):
        (prefix / name).mkdir(parents=True)
        packages[name].fill(prefix / name)
    source = "\n".join(f". {path}" for path in sorted(prefix.glob("*/etc/conda/activate.d/*.sh")))
    undo = "\n".join(f". {path}" for path in sorted(prefix.glob("*/etc/conda/deactivate.d/*.sh")))
    environment = {"PATH": "/usr/bin:/bin", "CONDA_PREFIX": str(prefix), **variables}
    program = f"{source}\n{script}\n{undo}\necho after: ${{CXX-unset}} ${{CFLAGS-unset}}"
    return subprocess.check_output(["bash", "-euc", program], cwd=prefix, env=environment, text=True)


def test_a_program_builds_with_the_activated_compiler_and_deactivation_restores(
    packages: dict[str, LocalPackage], toolchain: Toolchain, tmp_path: Path
) -> None:
    (tmp_path / "hello.cpp").write_text(_PROGRAM)
    script = "$CXX $CPPFLAGS $CXXFLAGS ../hello.cpp $LDFLAGS -o hello\n./hello"
    printed = _activated(packages, tmp_path / "env", script, CFLAGS="mine")
    assert printed == f"hello {toolchain.version}\nafter: unset mine\n"


def test_a_build_has_conda_forge_s_variables_of_a_compiler(
    packages: dict[str, LocalPackage], toolchain: Toolchain, tmp_path: Path
) -> None:
    names = (
        "HOST", "BUILD", "CONDA_TOOLCHAIN_HOST", "CONDA_TOOLCHAIN_BUILD", "CC", "GCC", "CC_FOR_BUILD", "CXX", "GXX",
        "CXX_FOR_BUILD", "CPPFLAGS", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS", *toolchain.programs,
    )  # fmt: skip
    assert {"AR", "AS", "LD", "NM", "RANLIB", "STRIP", "OBJCOPY", "READELF", "GCC_NM"} <= {
        *toolchain.programs
    }
    printed = _activated(packages, tmp_path / "env", "\n".join(f'echo "${name}"' for name in names))
    assert all(printed.splitlines()[: len(names)])
    assert "-fPIC" in printed.splitlines()[names.index("CFLAGS")]


def test_in_a_build_paths_are_mapped_away_and_no_machine_is_assumed(
    packages: dict[str, LocalPackage], tmp_path: Path
) -> None:
    build = {"CONDA_BUILD": "1", "PREFIX": "/p", "SRC_DIR": "/s", "PKG_NAME": "n", "PKG_VERSION": "1"}
    printed = _activated(
        packages,
        tmp_path / "env",
        "echo $CXXFLAGS; echo $LDFLAGS; echo $CMAKE_ARGS; echo CMAKE_PREFIX_PATH=$CMAKE_PREFIX_PATH",
        **build,
    )
    assert "-isystem /p/include -fdebug-prefix-map=/s=/usr/local/src/conda/n-1" in printed
    assert "-fdebug-prefix-map=/p=/usr/local/src/conda-prefix" in printed
    assert "-Wl,-rpath,/p/lib" in printed
    assert "CMAKE_PREFIX_PATH=/p\n" in printed
    assert "-march" not in printed


@pytest.mark.parametrize("file", ["libx.so.1.2.3", "libx.so.1"])
def test_a_run_time_library_is_found_by_the_name_that_programs_load(file: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text("library")
    (tmp_path / "env").mkdir()
    compilers._copy_library(tmp_path / file, tmp_path / "env")
    for name in ("libx.so.1", file):
        assert (tmp_path / "env" / "lib" / name).read_text() == "library"


def test_run_time_libraries_are_in_their_packages(packages: dict[str, LocalPackage], tmp_path: Path) -> None:
    for name, file in {
        "libgcc": "libgcc_s.so.1",
        "libgomp": "libgomp.so.1",
        "libstdcxx": "libstdc++.so.6",
    }.items():
        (tmp_path / name).mkdir()
        packages[name].fill(tmp_path / name)
        assert (tmp_path / name / "lib" / file).stat().st_size > 0


def test_versions_are_those_of_the_compiler_and_a_changed_compiler_changes_the_build_string(
    packages: dict[str, LocalPackage], toolchain: Toolchain
) -> None:
    assert packages["gxx_linux-64"].version == toolchain.version
    assert packages["sysroot_linux-64"].run_exports["strong"] == (f"__glibc >={toolchain.glibc},<3.0.a0",)
    needed = (f"__glibc >={toolchain.glibc}",)
    assert packages["libgcc"].depends == needed
    assert packages["libstdcxx"].depends == (*needed, f"libgcc >={toolchain.major}")
    other = compilers.packages(replace(toolchain, digest="other"), "linux-64")
    changed = {package.name: package.build_string for package in other}
    assert changed["gcc_linux-64"] != packages["gcc_linux-64"].build_string


@pytest.mark.parametrize("root", ["f00d", ""], ids=["a Debian root", "this machine"])
def test_nvcc_works_only_with_the_programs_of_its_time(root: str) -> None:
    """Environments are kept from run to run only as long as the programs are the same."""
    package = compilers.nvcc("13.0.88", "13.0", "linux-64", {}, needs=(), root=root)
    assert package.starts_programs
