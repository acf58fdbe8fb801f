"""Finding interpreters, naming their packages and filling them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from small_files import program, write

from groundwork.errors import ProviderError
from megabuild.providers.local import interpreters
from megabuild.providers.local import python as python_package
from megabuild.providers.local.interpreters import Interpreter
from megabuild.providers.local.package import has_rpath


def _fake(
    folder: Path, version: str, *, headers: bool = True, level: str = "final", abiflags: str = ""
) -> Path:
    """A program that answers like an interpreter."""
    short = ".".join(version.split(".")[:2]) + abiflags
    include = folder / "include" / f"python{short}"
    if headers:
        include.mkdir(parents=True)
        (include / "Python.h").touch()
    answer = {
        "implementation": "cpython",
        "level": level,
        "version": version,
        "abiflags": abiflags,
        "soabi": f"cpython-{short.replace('.', '')}",
        "prefix": str(folder),
        "stdlib": str(folder / "lib" / f"python{short}"),
        "include": str(include),
        "library_folder": str(folder / "lib"),
        "multiarch": "",
    }
    # without these options, a module of the user's may print, too
    text = f"""[ "$1 $2" = "-I -S" ] && echo '{json.dumps(answer)}'"""
    return program(folder / "bin" / f"python{short}", text)


def test_the_highest_micro_version_is_chosen_and_free_threaded_builds_are_pythons_of_their_own(
    tmp_path: Path,
) -> None:
    paths = [_fake(tmp_path / version, version) for version in ("3.12.9", "3.12.10", "3.12.1", "3.13.1")]
    paths.append(_fake(tmp_path / "free", "3.13.2", abiflags="t"))
    paths.append(_fake(tmp_path / "of-the-system", "3.12.10"))
    found = interpreters.find(lambda _: None, paths)
    assert {python: one.version for python, one in found.items()} == {
        "3.12": "3.12.10", "3.13": "3.13.1", "3.13t": "3.13.2"
    }  # fmt: skip
    assert found["3.12"].executable == paths[1], "of two, the first: the system's may have Debian's layout"


def test_prereleases_old_pythons_broken_programs_and_those_without_headers_are_left_out(
    tmp_path: Path,
) -> None:
    said: list[object] = []
    assert interpreters.find(said.append, [_fake(tmp_path / "bare", "3.12.1", headers=False)]) == {}
    assert "Python.h" in str(said[0])
    broken = program(tmp_path / "broken" / "bin" / "python3.12", "exit 1")
    paths = [_fake(tmp_path / "rc", "3.14.0", level="candidate"), _fake(tmp_path / "old", "3.9.1"), broken]
    assert interpreters.find(lambda _: None, paths) == {}


def test_a_newer_python_without_headers_stands_in_no_older_ones_way(tmp_path: Path) -> None:
    newer = _fake(tmp_path / "newer", "3.12.10", headers=False)
    older = _fake(tmp_path / "older", "3.12.3")
    for paths in ([newer, older], [older, newer]):
        assert interpreters.find(lambda _: None, paths)["3.12"].version == "3.12.3"


def test_pyenv_and_uv_folders_are_searched_and_closed_ones_passed_over(tmp_path: Path) -> None:
    pyenv = _fake(tmp_path / "pyenv" / "versions" / "3.12.1", "3.12.1")
    uv = _fake(tmp_path / "data" / "uv" / "python" / "cpython-3.13.2-linux", "3.13.2")
    (pyenv.parents[2] / "3.12").symlink_to("3.12.1")
    environ = {"PYENV_ROOT": str(tmp_path / "pyenv"), "XDG_DATA_HOME": str(tmp_path / "data")}
    found = list(interpreters.candidates(environ, tmp_path))
    assert found[:2] == [pyenv, uv]
    pyenv.parents[2].chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may look into everything
    try:
        found = list(interpreters.candidates(environ, tmp_path))
    finally:
        os.seteuid(user)
        pyenv.parents[2].chmod(0o700)
    assert pyenv not in found
    assert found


@pytest.mark.parametrize(
    ("environ", "has_home", "folders"),
    [
        ({}, True, [".pyenv/versions", ".local/share/uv/python"]),
        ({"PYENV_ROOT": "", "XDG_DATA_HOME": ""}, True, [".pyenv/versions", ".local/share/uv/python"]),
        ({"PYENV_ROOT": "pyenv"}, True, ["pyenv/versions", ".local/share/uv/python"]),
        ({"UV_PYTHON_INSTALL_DIR": "uv", "XDG_DATA_HOME": "data"}, True, [".pyenv/versions", "uv"]),
        ({"XDG_DATA_HOME": "data"}, False, ["data/uv/python"]),
        ({}, False, []),
    ],
)
def test_variables_name_the_folders_of_pyenv_and_uv_else_the_home_has_them(
    environ: dict[str, str], has_home: bool, folders: list[str], tmp_path: Path
) -> None:
    for folder in (".pyenv/versions", "pyenv/versions", ".local/share/uv/python", "uv", "data/uv/python"):
        write(tmp_path / folder / "3.12.1/bin/python3.12")
    given = {name: value and str(tmp_path / value) for name, value in environ.items()}
    found = interpreters.candidates(given, tmp_path if has_home else None)
    below = [path for path in found if path.is_relative_to(tmp_path)]
    assert below == [tmp_path / folder / "3.12.1/bin/python3.12" for folder in folders]


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """An interpreter of a few files."""
    path = _fake(tmp_path, "3.12.1")
    for name in ("os.py", "test/test_os.py", "__pycache__/os.pyc"):
        name = f"lib/python3.12/{name}"
        write(tmp_path / name, f"prefix = '{tmp_path}'\n")
    found = interpreters.ask(path)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("version", "free_threaded", "ending", "abi"),
    [
        ("3.12.1", False, "_0_cpython", "cp312"),
        ("3.13.0", False, "_100_cp313", "cp313"),
        ("3.13.0", True, "_0_cp313t", "cp313t"),
    ],
)
def test_build_strings_are_conda_forges(
    interpreter: Interpreter, version: str, free_threaded: bool, ending: str, abi: str
) -> None:
    one = replace(interpreter, version=version, free_threaded=free_threaded)
    python, python_abi = python_package.packages(one, "linux-64", one)
    assert python.build_string.endswith(ending)
    assert python_abi.build_string == f"8_{abi}"
    number = ".".join(version.split(".")[:2])
    assert python.run_exports["weak"] == (f"python_abi {number}.* *_{abi}",)
    assert python.constrains == python.run_exports["weak"]
    assert python.build_number == int(ending.split("_")[1])
    assert python.site_packages == f"lib/python{one.python}/site-packages"
    assert python_abi.constrains == (f"python {number}.* *_{python.build_string.rpartition('_')[2]}",)


def test_modules_for_another_machine_are_compiled_by_this_machine_s_python(interpreter: Interpreter) -> None:
    foreign = replace(interpreter, machine="aarch64", executable=Path("/of-the-root/usr/bin/python3.12"))
    package, _ = python_package.packages(foreign, "linux-aarch64", interpreter)
    assert package.interpreter == interpreter.executable


def test_tests_and_caches_are_not_packaged_the_prefix_moves_and_a_changed_file_changes_the_package(
    interpreter: Interpreter, tmp_path: Path
) -> None:
    prefix = tmp_path / "new-prefix"
    prefix.mkdir()
    write(interpreter.library_folder / "libpython3.12.so.1.0")
    (interpreter.library_folder / "libpython3.12.so").symlink_to("libpython3.12.so.1.0")
    package = python_package.packages(interpreter, "linux-64", interpreter)[0]
    package.fill(prefix)
    library = prefix / "lib" / "python3.12"
    assert sorted(path.name for path in library.iterdir()) == ["os.py", "site-packages"]
    assert (library / "os.py").read_text() == f"prefix = '{package.relocate}'\n"
    for name in ("python", "python3"):
        assert (prefix / "bin" / name).resolve() == (prefix / "bin" / "python3.12")
    assert (prefix / "lib/libpython3.12.so").readlink() == Path("libpython3.12.so.1.0")
    assert python_package.packages(interpreter, "linux-64", interpreter)[0].key == package.key
    (interpreter.stdlib / "os.py").write_text("changed = True\n")
    assert python_package.packages(interpreter, "linux-64", interpreter)[0].key != package.key


_LINE = "    prefix_scheme = 'posix_local'\n"
_MULTIARCH = "x86_64-linux-gnu"


def _debians(folder: Path, sysconfig: str, text: str) -> Interpreter:
    """Return an interpreter with the layout of Debian's, with few files."""
    usr = folder / "usr"
    path = _fake(usr, "3.12.1")
    modules = {
        "os.py": "",
        sysconfig: text,
        "_distutils_system_mod.py": "",
        "config-3.12/libpython3.12.a": "",
    }
    for name, content in modules.items():
        write(usr / "lib/python3.12" / name, content)
    (usr / "lib/python3.12/config-3.12/libpython3.12.so").symlink_to("../../nowhere.so")
    write(usr / "include/python3.12/pyconfig.h", "#include <x86_64-linux-gnu/python3.12/pyconfig.h>\n")
    write(usr / f"include/{_MULTIARCH}/python3.12/pyconfig.h", "#define OWN 1\n")
    found = interpreters.ask(path)
    assert found is not None
    return replace(found, multiarch=_MULTIARCH)


@pytest.mark.parametrize("sysconfig", ["sysconfig.py", "sysconfig/__init__.py"])
def test_debian_s_interpreter_is_packaged_as_upstream_s(sysconfig: str, tmp_path: Path) -> None:
    """Debian's installs to dist-packages, and has headers and libraries in the system's folders."""
    debians = _debians(tmp_path, sysconfig, f"def scheme():\n{_LINE}    return prefix_scheme\n")
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    package, _ = python_package.packages(debians, "linux-64", debians)
    assert package.relocate == "", "/usr in its files may be the system's own folder"
    package.fill(prefix)
    library = prefix / "lib/python3.12"
    assert (library / sysconfig).read_text() == (
        "def scheme():\n    prefix_scheme = 'posix_prefix'\n    return prefix_scheme\n"
    )
    assert "site.addsitedir" in (library / "sitecustomize.py").read_text()
    assert not (library / "_distutils_system_mod.py").exists(), "setuptools would install to dist-packages"
    assert [*(library / "config-3.12").iterdir()] == [], "linking to the system's library would find it first"
    assert (prefix / "include/python3.12/pyconfig.h").read_text() == "#define OWN 1\n"


def test_an_interpreter_of_an_unknown_debian_is_refused(tmp_path: Path) -> None:
    debians = _debians(tmp_path, "sysconfig.py", "prefix_scheme = 'another'\n")
    (tmp_path / "prefix").mkdir()
    with pytest.raises(ProviderError, match="does not have Debian's line") as refused:
        python_package.packages(debians, "linux-64", debians)[0].fill(tmp_path / "prefix")
    assert "uv python install 3.12" in refused.value.remedy


def test_an_rpath_is_seen_where_there_is_one(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "x.c").write_text("int x;\n")
    for name, flags in (("with", ["-Wl,-rpath,/opt/lib"]), ("without", [])):
        subprocess.run(["gcc", "-shared", "-o", tmp_path / name, tmp_path / "x.c", *flags], check=True)
    assert has_rpath(tmp_path / "with")
    assert not has_rpath(tmp_path / "without")
    assert not has_rpath(tmp_path / "x.c")
