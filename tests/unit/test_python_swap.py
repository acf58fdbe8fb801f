"""The Python swap on real caches, with programs in place of CMake and ninja that say what the test wants to hear."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from small_files import program, write

from cmake_python_swap import __main__ as command_line
from cmake_python_swap import (
    python_entries,
    python_facts,
    python_headers,
    python_swap,
    skbuild_backend,
    undo_folder,
)
from cmake_python_swap.cmake_cache import CMakeCache, load
from cmake_python_swap.cmake_regenerate import RegenerateError
from cmake_python_swap.frozen_settings import changed, conflicts, difference
from cmake_python_swap.python_facts import InterpreterError, PythonFacts
from cmake_python_swap.python_swap import TreeRefused, swap

PREFIX = "/opt/env"
# The ten entries that differ between two Pythons in one prefix (measured), and what finds each of them again.
TEN = {
    "CMAKE_PREFIX_PATH", "pybind11_DIR", "pybind11_INCLUDE_DIRS", "FIND_PACKAGE_MESSAGE_DETAILS_Python",
    "PYTHON_MODULE_EXTENSION", "_Python_DEVELOPMENT_MODULE_SIGNATURE", "_Python_INCLUDE_DIR",
    "_Python_INTERPRETER_PROPERTIES", "_Python_NUMPY_SIGNATURE", "_Python_NumPy_INCLUDE_DIR",
}  # fmt: skip
NINJA_FILE = """rule cc
  command = cc $FLAGS -c $in -o $out
  description = Building CXX object $out
build core.o: cc core.cpp
  FLAGS = -O2
  OBJECT_DIR = c10/CMakeFiles/c10.dir
build python.o: cc python.cpp
  FLAGS = -O2 -isystem {include}
  OBJECT_DIR = torch/CMakeFiles/torch_python.dir
"""


def facts(version: str = "3.11.7", prefix: str = PREFIX, abi: str = "") -> PythonFacts:
    major, minor, _ = version.split(".")
    name = f"python{major}.{minor}{abi}"
    packages = f"{prefix}/lib/{name}/site-packages"
    soabi = f"cpython-{major}{minor}{abi}-x86_64-linux-gnu"
    return PythonFacts(
        implementation="cpython", version=version, executable=f"{prefix}/bin/python3", prefix=prefix,
        base_exec_prefix=prefix, free_threaded="t" in abi, soabi=soabi,
        include=f"{prefix}/include/{name}", purelib=packages, platlib=packages, libdir=f"{prefix}/lib",
        library=f"lib{name}.so", numpy_include=f"{packages}/numpy/_core/include",
        pybind11_include=f"{packages}/pybind11/include", pybind11_cmake=f"{packages}/pybind11/share/cmake/pybind11",
        skbuild=f"{packages}/scikit_build_core",
    )  # fmt: skip


@pytest.fixture
def caches(repository: Path) -> Mapping[str, Path]:
    folder = repository / "tests" / "data" / "cmake-caches"
    return {v: folder / f"pytorch-2.6.0.py{v.replace('.', '')}.CMakeCache.txt" for v in ("3.11", "3.12")}


def patched(path: Path, target: PythonFacts) -> CMakeCache:
    cache = load(path)
    python_entries.apply(cache, python_entries.plan(cache, target))
    return cache


def parse(*lines: str) -> CMakeCache:
    return CMakeCache.parse("\n".join(lines) + "\n")


# ---- which entries, and what becomes of them --------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), [("3.12", "3.11.7"), ("3.11", "3.12.1")])
def test_a_patched_real_cache_agrees_with_the_other_real_one_in_all_it_still_holds(
    caches: Mapping[str, Path], old: str, new: str
) -> None:
    """The fixture's cmake is in /opt/tools/lib/python3.11: substituting 3.11 in the text made it unusable."""
    before, other = load(caches[old]), load(caches[new.rpartition(".")[0]])
    assert {entry.name for entry in before if entry.value != other.get(entry.name)} == TEN
    assert {change.name for change in python_entries.plan(before, facts(new))} >= TEN
    result = {entry.name: entry.value for entry in patched(caches[old], facts(new))}
    wanted = {entry.name: entry.value for entry in other}
    assert {name for name in result if result[name] != wanted[name]} == set()
    assert wanted.keys() - result.keys() >= TEN - {"CMAKE_PREFIX_PATH", "pybind11_DIR"}


@pytest.mark.parametrize(
    ("entry", "after"),
    [
        ("STAMP:STRING=2024-03-12T03:12:00", "2024-03-12T03:12:00"),
        ("SIZE:STRING=312", "312"),
        ("N:PATH=/opt/env/lib/python3.12x/site-packages", "/opt/env/lib/python3.12x/site-packages"),
        (
            "CMAKE_MODULE_PATH:PATH=/opt/tools/lib/python3.12/site-packages/x;/opt/env/lib/python3.12/site-packages/y",
            "/opt/tools/lib/python3.12/site-packages/x;/opt/env/lib/python3.11/site-packages/y",
        ),
    ],
)
def test_only_what_names_the_environments_python_changes(entry: str, after: str) -> None:
    cache = parse(entry)
    python_entries.apply(cache, python_entries.plan(cache, facts()))
    assert [entry.value for entry in cache] == [after]


def test_a_free_threaded_tree_is_made_recognised_and_left_again(caches: Mapping[str, Path]) -> None:
    result = patched(caches["3.12"], facts("3.13.0", abi="t"))
    assert result["pybind11_DIR"].value.startswith("/opt/env/lib/python3.13t/site-packages/")
    assert result["CMAKE_PREFIX_PATH"].value == "/opt/env/lib/python3.13t/site-packages;/opt/env"
    cache = parse(
        "_Python_INTERPRETER_PROPERTIES:INTERNAL=Python;3;13;0;64;t;cpython-313t-x86_64-linux-gnu;;/opt/env/lib",
        "CMAKE_PREFIX_PATH:PATH=/opt/env/lib/python3.13t/site-packages;/opt/env",
        "Python_FIND_ABI:STRING=ANY;ANY;ANY;ON",
    )
    assert python_entries.version(cache) == "3.13t"
    python_entries.apply(cache, python_entries.plan(cache, facts("3.12.1")))
    assert cache["Python_FIND_ABI"].value == "ANY;ANY;ANY;OFF"
    assert cache["CMAKE_PREFIX_PATH"].value == "/opt/env/lib/python3.12/site-packages;/opt/env"


def test_all_names_of_python_entries_are_known() -> None:
    target = facts("3.11.7")
    cache = parse(
        "Python3_EXECUTABLE:FILEPATH=/opt/env/bin/python3.12", "PYTHON_EXECUTABLE:FILEPATH=/opt/env/bin/python3.12",
        "Python_INCLUDE_DIR:PATH=/opt/env/include/python3.12", "PYTHON_INCLUDE_DIR:PATH=/opt/env/include/python3.12",
        "Python3_NumPy_INCLUDE_DIR:PATH=/opt/env/lib/python3.12/site-packages/numpy/core/include",
        "PYTHON_LIBRARY:FILEPATH=/opt/env/lib/libpython3.12.so",
        "PYTHON_LIBRARY_DEBUG:FILEPATH=PYTHON_LIBRARY_DEBUG-NOTFOUND",
        "PYTHON_LIB_REL_PATH:STRING=lib/python3.12/site-packages", "SKBUILD_SOABI:STRING=cpython-312-x86_64-linux-gnu",
        "Python_ROOT_DIR:PATH=/", "_Python_EXECUTABLE:INTERNAL=/opt/env/bin/python3.12",
        "_Python3_INCLUDE_DIR:INTERNAL=/opt/env/include/python3.12",
        "BUILD_PYTHON:BOOL=ON", "USE_NUMPY:BOOL=ON",
    )  # fmt: skip
    python_entries.apply(cache, python_entries.plan(cache, target))
    assert {entry.name: entry.value for entry in cache} == {
        "Python_EXECUTABLE": target.executable,
        "Python3_EXECUTABLE": target.executable, "PYTHON_EXECUTABLE": target.executable,
        "Python_INCLUDE_DIR": target.include, "PYTHON_INCLUDE_DIR": target.include,
        "Python3_NumPy_INCLUDE_DIR": target.numpy_include,
        "PYTHON_LIBRARY": "/opt/env/lib/libpython3.11.so", "PYTHON_LIBRARY_DEBUG": "PYTHON_LIBRARY_DEBUG-NOTFOUND",
        "PYTHON_LIB_REL_PATH": "lib/python3.11/site-packages", "SKBUILD_SOABI": target.soabi,
        "Python_ROOT_DIR": "/", "BUILD_PYTHON": "ON", "USE_NUMPY": "ON",
    }  # fmt: skip


def test_the_name_by_which_the_tree_calls_the_interpreter_is_kept(tmp_path: Path) -> None:
    (tmp_path / "python3.11").touch()
    (tmp_path / "python").symlink_to("python3.11")
    cache = parse(f"Python_EXECUTABLE:FILEPATH={tmp_path}/python")
    asked = replace(facts(), executable=f"{tmp_path}/python3.11")
    assert python_entries.executable(cache, asked) == f"{tmp_path}/python"


def test_a_pybind11_outside_of_any_python_is_kept_while_it_is_there(tmp_path: Path) -> None:
    shared = parse(f"pybind11_DIR:PATH={tmp_path}")
    assert python_entries.plan(shared, facts()) == ()
    gone = parse("pybind11_DIR:PATH=/opt/env/share/gone")
    assert python_entries.plan(gone, facts())[0].new == facts().pybind11_cmake


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("Python_NumPy_INCLUDE_DIR:PATH=/x", "has no NumPy"),
        ("pybind11_DIR:PATH=/opt/env/lib/python3.12/site-packages/pybind11", "has no pybind11"),
    ],
)
def test_an_interpreter_without_what_the_tree_uses_is_an_error(line: str, complaint: str) -> None:
    with pytest.raises(python_entries.EntriesError, match=complaint):
        python_entries.plan(parse(line), replace(facts(), numpy_include="", pybind11_cmake=""))


RESULTS = (
    *(
        f"_Python{number}_{name}:INTERNAL=x"
        for number in ("", "3")
        for name in ("INCLUDE_DIR", "LIBRARY_RELEASE")
    ),
    *(
        f"FIND_PACKAGE_MESSAGE_DETAILS_{name}:INTERNAL=[/opt/env/bin/python3.12]"
        for name in ("Python", "Python3", "PythonInterp", "PythonLibs", "NumPy", "pybind11")
    ),
    *(
        f"{name}_{part}:STRING=x"
        for name in ("Python", "Python3")
        for part in ("SITEARCH", "SITELIB", "SOABI")
    ),
    *(
        f"{name}_VERSION{part}:STRING=3.12"
        for name in ("Python", "Python3")
        for part in ("", "_MAJOR", "_MINOR")
    ),
    *(
        f"PYTHON_{name}:INTERNAL=x"
        for name in (
            "MODULE_EXTENSION",
            "MODULE_DEBUG_POSTFIX",
            "IS_DEBUG",
            "VERSION_STRING",
            "SITE_PACKAGES",
        )
    ),
    "PYBIND11_PYTHON_EXECUTABLE_LAST:INTERNAL=/opt/env/bin/python3.12",
    "pybind11_INCLUDE_DIR:INTERNAL=x",
    "pybind11_INCLUDE_DIRS:INTERNAL=x",
)
#: Entries that users or other packages set.
OF_OTHERS = (
    "FIND_PACKAGE_MESSAGE_DETAILS_MKL:INTERNAL=x",
    "_Pythonic:STRING=x",
    "Python_FIND_STRATEGY:STRING=LOCATION",
    "PYTHON_TESTS:BOOL=ON",
)


def test_cmake_finds_all_results_of_the_former_python_again() -> None:
    cache = parse(*RESULTS, *OF_OTHERS)
    changes = python_entries.plan(cache, facts())
    names = [entry.partition(":")[0] for entry in RESULTS]
    assert [(change.name, change.new) for change in changes] == [(name, None) for name in names]
    assert python_entries.plan(parse("pybind11_INCLUDE_DIR:PATH=/own/pybind11"), facts()) == ()


@pytest.mark.parametrize(
    ("entries", "new"),
    [
        ("Python_FIND_ABI:STRING=OFF;ANY;OFF", "OFF;ANY;OFF;ON"),
        ("Python_FIND_ABI:STRING=OFF;ANY;OFF;ON", None),
        ("CMAKE_FIND_ROOT_PATH:PATH=/opt/env;/opt/env/lib/python3.12/site-packages/x",
         "/opt/env;/opt/env/lib/python3.14t/site-packages/x"),
        ("CMAKE_PREFIX_PATH:PATH=/opt/env/lib64/python3.12/site-packages", "/opt/env/lib/python3.14t/site-packages"),
        ("CMAKE_PREFIX_PATH:PATH=/opt/env/lib/python3.12/dist-packages/a/b",
         "/opt/env/lib/python3.14t/site-packages/a/b"),
        ("CMAKE_PREFIX_PATH:PATH=/opt/other/lib/python3.12/site-packages", None),
        ("Python_LIB_REL_PATH:STRING=lib/python3.12/site-packages", "lib64/python3.14t/site-packages"),
        ("Python_LIBRARY:FILEPATH=Python_LIBRARY-NOTFOUND", None),
        ("PYTHON_LIBRARY:FILEPATH=", None),
        ("Python_ROOT_DIR:PATH=/usr", None),
        ("Python_ROOT_DIR:PATH=/opt/gone", "/opt/base"),
        ("SKBUILD:STRING=2\nPython_ROOT_DIR:PATH=/usr", "/opt/base"),
        ("pybind11_DIR:PATH=pybind11_DIR-NOTFOUND", None),
        ("pybind11_DIR:PATH=", None),
        ("Python_EXECUTABLE:FILEPATH=/opt/env/bin/python3.12", "/opt/env/bin/python3"),
        ("_Python_EXECUTABLE:INTERNAL=/opt/env/bin/python3.12\nPython_EXECUTABLE:FILEPATH=/opt/env/bin/python3", None),
    ],
)  # fmt: skip
def test_an_entry_that_was_passed_to_cmake_gets_the_new_python_s_value(entries: str, new: str | None) -> None:
    """Values that were not found, and those of other prefixes, stay."""
    platlib = "/opt/env/lib64/python3.14t/site-packages"
    target = replace(facts("3.14.0", abi="t"), base_exec_prefix="/opt/base", platlib=platlib)
    changes = [change for change in python_entries.plan(parse(entries), target) if change.new is not None]
    assert [change.new for change in changes] == ([] if new is None else [new])


def test_three_items_of_an_abi_are_all_that_older_cmakes_accept() -> None:
    assert python_entries.plan(parse("Python_FIND_ABI:STRING=OFF;ANY;OFF"), facts()) == ()


@pytest.mark.parametrize("package", ["Python", "Python3"])
def test_an_interpreter_that_cmake_found_itself_is_kept_from_being_another_one(package: str) -> None:
    changes = python_entries.plan(parse(f"_{package}_EXECUTABLE:INTERNAL=/opt/env/bin/python3.12"), facts())
    assert [(change.name, change.old, change.new) for change in changes if change.new is not None] == [
        (f"{package}_EXECUTABLE", None, "/opt/env/bin/python3")
    ]


PROPERTIES = (
    "_{0}_INTERPRETER_PROPERTIES:INTERNAL=Python;3;11;7;64;<none>;cpython-311-x86_64-linux-gnu;abi3;/opt/env"
)


@pytest.mark.parametrize(
    ("entries", "version"),
    [
        (PROPERTIES.format("Python3"), "3.11"),
        ("_Python_INTERPRETER_PROPERTIES:INTERNAL=Py;3\nPYTHON_MODULE_EXTENSION:INTERNAL=.cpython-313t.so", "3.13t"),
        ("SKBUILD_SOABI:STRING=cpython-310-x86_64-linux-gnu", "3.10"),
        ("SKBUILD_SOABI:STRING=pypy310-pp73", ""),
        ("USE_NUMPY:BOOL=ON", ""),
    ],
)  # fmt: skip
def test_the_former_python_is_in_results_of_cmake_or_of_its_back_end(entries: str, version: str) -> None:
    assert python_entries.version(parse(entries)) == version


@pytest.mark.parametrize("name", ["Python_EXECUTABLE", "_Python3_EXECUTABLE", "PYTHON_EXECUTABLE"])
def test_the_prefix_is_that_of_any_entry_with_the_interpreter(name: str) -> None:
    assert python_entries.prefix(parse(f"{name}:FILEPATH=/opt/env/bin/python3.12")) == "/opt/env"
    assert python_entries.prefix(parse("USE_NUMPY:BOOL=ON")) == ""


@pytest.mark.parametrize("package", ["Python", "Python3"])
@pytest.mark.parametrize(
    ("entry", "differs"),
    [
        ("", False),
        ("_{0}_INCLUDE_DIR:INTERNAL=/opt/env/include/python3.11", False),
        ("_{0}_INCLUDE_DIR:INTERNAL=/opt/env/include/python3.12", True),
        ("_{0}_NumPy_INCLUDE_DIR:INTERNAL=/opt/env/lib/python3.11/site-packages/numpy/_core/include", False),
        ("_{0}_NumPy_INCLUDE_DIR:INTERNAL=/usr/include/numpy", True),
    ],
)
def test_a_tree_describes_a_python_only_if_cmake_found_all_of_its_folders(
    entry: str, differs: bool, package: str
) -> None:
    cache = parse(
        PROPERTIES.format(package),
        f"{package}_EXECUTABLE:FILEPATH=/opt/env/bin/python3",
        entry.format(package),
    )
    assert len(list(python_entries.disagreements(cache, facts()))) == differs
    assert python_entries.describes(cache, facts()) != differs
    passed = parse(PROPERTIES.format(package), f"{package}_EXECUTABLE:FILEPATH=/opt/env/bin/python3.12")
    assert not python_entries.describes(passed, facts()), "CMake was passed another Python since"
    never_run = parse(f"{package}_EXECUTABLE:FILEPATH=/opt/env/bin/python3")
    assert not python_entries.describes(never_run, facts())


# ---- asking the interpreter --------------------------------------------------------------------------------------


def fake_python(folder: Path, *, before: str = "", answer: Mapping[str, object] | None = None) -> Path:
    """An interpreter of which the test decides what it says."""
    (folder / "include").mkdir(exist_ok=True)
    (folder / "include" / "Python.h").touch()
    values = {**vars(facts()), "include": str(folder / "include"), **(answer or {})}
    return program(folder / "python", f"cat <<'EOF'\n{before}::python-facts::{json.dumps(values)}\nEOF")


def test_an_interpreter_answers_for_itself_whatever_it_says_first(tmp_path: Path) -> None:
    assert python_facts.ask(fake_python(tmp_path, before="MKL WARNING\n")).version == "3.11.7"
    answer = python_facts.ask(Path(sys.executable))
    assert answer.version == ".".join(map(str, sys.version_info[:3]))
    assert answer.executable == os.path.abspath(sys.executable)
    for path in (tmp_path / "missing", Path("/bin/false")):
        with pytest.raises(InterpreterError, match=r"does not run|fails"):
            python_facts.ask(path)


def test_an_interpreter_sees_the_modules_of_its_environment_and_none_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "here" / "json.py", "raise SystemExit('of the current folder')")
    write(tmp_path / "path" / "numpy.py", "def get_include():\n    return '/numpy'\n")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    assert python_facts.ask(Path(sys.executable)).numpy_include == "/numpy"


def test_an_answer_is_the_marked_line_for_the_path_that_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link of a virtual environment stays: CMake would use the base's modules otherwise."""
    python = fake_python(tmp_path, before="{}\n")
    python.write_text(python.read_text() + "echo bye\n")
    (tmp_path / "link").symlink_to(python)
    monkeypatch.chdir(tmp_path)
    assert python_facts.ask(Path("link")).executable == f"{tmp_path}/link"
    python.write_text(python.read_text() + "exit 3\n")
    with pytest.raises(InterpreterError, match="exit code 3"):
        python_facts.ask(python)


@pytest.mark.parametrize(("version", "abi", "short"), [("3.13.1", "t", "3.13t"), ("3.13.1", "", "3.13")])
def test_a_version_names_the_free_threaded_python(version: str, abi: str, short: str) -> None:
    assert facts(version, abi=abi).short == short


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({"implementation": "pypy"}, "is pypy 3.11.7; it must be CPython >= 3.10"),
        ({"version": "3.9.18"}, "it must be CPython >= 3.10"),
        ({"include": "/nowhere"}, "/nowhere/Python.h is missing"),
    ],
)
def test_an_interpreter_that_does_not_fit_is_an_error(
    tmp_path: Path, answer: dict[str, str], complaint: str
) -> None:
    with pytest.raises(InterpreterError, match=complaint):
        python_facts.ask(fake_python(tmp_path, answer=answer))


# ---- what must not change ----------------------------------------------------------------------------------------


@pytest.fixture
def configured(tmp_path: Path) -> CMakeCache:
    return parse(
        "CMAKE_C_FLAGS:STRING=-O2 -isystem /opt/env/include", "CMAKE_CXX_FLAGS:STRING=-O2 -isystem /opt/env/include",
        "CMAKE_SHARED_LINKER_FLAGS:STRING=-Wl,-O2", "CMAKE_BUILD_TYPE:STRING=Release",
        "CMAKE_INSTALL_PREFIX:PATH=/tree/torch", f"CMAKE_CACHEFILE_DIR:INTERNAL={tmp_path}",
        f"CMAKE_HOME_DIRECTORY:INTERNAL={tmp_path}", "CMAKE_CXX_COMPILER:FILEPATH=/usr/bin/env",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({}, None),
        ({"CFLAGS": "-O2 -isystem /opt/env/include", "CXXFLAGS": "  -O2   -isystem /opt/env/include "}, None),
        ({"CFLAGS": "-isystem /opt/env/include", "LDFLAGS": "-Wl,-O2"}, None),
        ({"CMAKE_BUILD_TYPE": "Release", "CXX": "env", "CUDACXX": "nvcc", "CUDAFLAGS": "-g"}, None),
        ({"CXXFLAGS": "-O3", "CMAKE_CXX_FLAGS": "-O2 -isystem /opt/env/include"}, None),
        ({"CFLAGS": "-O3 -isystem /opt/env/include"}, "-O2 became -O3"),
        ({"CXXFLAGS": "-O2 -isystem /opt/env/include -g"}, "with -g"),
        ({"LDFLAGS": "-Wl,-O1"}, "-Wl,-O2 became -Wl,-O1"),
        ({"LDFLAGS": "-Wl,-O2 -DA='"}, "with -DA='"),  # a quote that never ends
        ({"CMAKE_BUILD_TYPE": "Debug"}, "$CMAKE_BUILD_TYPE is 'Debug'"),
        ({"CMAKE_INSTALL_PREFIX": "/other"}, "/tree/torch became /other"),
        ({"CXX": "/bin/sh"}, "$CXX is /bin/sh"),
        ({"CMAKE_CXX_COMPILER": "env"}, None),
        ({"CMAKE_CXX_COMPILER": "/bin/sh"}, "$CMAKE_CXX_COMPILER is /bin/sh"),
    ],
)
def test_an_environment_that_would_compile_differently_disagrees(
    configured: CMakeCache, tmp_path: Path, environment: dict[str, str], sentence: str | None
) -> None:
    found = list(conflicts(configured, environment, tmp_path))
    assert len(found) == (sentence is not None)
    assert sentence is None or sentence in found[0]


@pytest.mark.parametrize(
    ("variable", "entry"),
    [
        ("CFLAGS", "CMAKE_C_FLAGS"), ("CXXFLAGS", "CMAKE_CXX_FLAGS"), ("CUDAFLAGS", "CMAKE_CUDA_FLAGS"),
        ("LDFLAGS", "CMAKE_SHARED_LINKER_FLAGS"), ("CC", "CMAKE_C_COMPILER"), ("CXX", "CMAKE_CXX_COMPILER"),
        ("CUDACXX", "CMAKE_CUDA_COMPILER"),
    ],
)  # fmt: skip
def test_each_variable_of_compilers_that_differs_from_the_tree_is_refused(
    variable: str, entry: str, tmp_path: Path
) -> None:
    cache = CMakeCache.parse(f"{entry}:STRING=/one\n")
    assert list(conflicts(cache, {variable: "/one"}, tmp_path)) == []
    (sentence,) = conflicts(cache, {variable: "/other"}, tmp_path)
    assert f"${variable} is " in sentence
    assert "/one" in sentence


@pytest.mark.parametrize("variable", ["CC", "CMAKE_C_COMPILER"])
def test_a_compiler_of_the_same_name_in_another_folder_is_another_one(variable: str, tmp_path: Path) -> None:
    former = program(tmp_path / "former" / "gcc", "true")
    other = program(tmp_path / "other" / "gcc", "true")
    link = tmp_path / "cc"
    link.symlink_to(former)
    cache = CMakeCache.parse(f"CMAKE_C_COMPILER:STRING={former}\n")
    assert list(conflicts(cache, {variable: str(link)}, tmp_path)) == []
    (sentence,) = conflicts(cache, {variable: str(other)}, tmp_path)
    assert str(other) in sentence


@pytest.mark.parametrize(
    "name",
    [
        *(f"CMAKE_{language}_FLAGS" for language in ("C", "CXX", "CUDA", "HIP", "OBJC", "OBJCXX", "ASM")),
        *(f"CMAKE_CXX_{name}" for name in ("FLAGS_RELEASE", "COMPILER", "COMPILER_LAUNCHER", "COMPILER_ARG1")),
        *(f"CMAKE_{kind}_LINKER_FLAGS" for kind in ("SHARED", "MODULE", "EXE", "STATIC")),
        "CMAKE_SHARED_LINKER_FLAGS_RELEASE", "CMAKE_BUILD_TYPE", "CMAKE_INSTALL_PREFIX", "CMAKE_SYSROOT",
        "CMAKE_OSX_DEPLOYMENT_TARGET", "CMAKE_OSX_ARCHITECTURES",
    ],
)  # fmt: skip
def test_a_setting_of_every_command_line_must_not_change(name: str) -> None:
    """Neither by CMake nor by the environment; also if CMake sets it for the first time."""
    before = parse(f"{name}:STRING=-a -b", "OTHER:STRING=1")
    after = parse(f"{name}:STRING=-a -c", "OTHER:STRING=2")
    (sentence,) = changed(before, after)
    assert sentence.startswith(f"CMake has set {name} to '-a -c'")
    assert sentence.endswith("-b became -c")
    assert len(list(changed(parse("OTHER:STRING=1"), after))) == 1
    assert list(changed(before, before)) == []
    (sentence,) = conflicts(before, {name: "/other"}, Path("/"))
    assert f"${name} is" in sentence
    is_free = name == "CMAKE_INSTALL_PREFIX"
    of_back_end = parse("SKBUILD:STRING=2", f"{name}:STRING=-a -c")
    assert len(list(changed(before, of_back_end))) == (not is_free), "it installs into a new folder each time"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("-O2 -g", "-O2 -g", ""),
        ("-O2 -g", "-g -O2", "its words are in another order"),
        ("-O2", "-O2 -g", "with -g"),
        ("-O2 -g", "-O2", "without -g"),
        ("-O2 -DA='b c'", "-O3 -DA='b c'", "-O2 became -O3"),
        ("", "-a -b -c -d -e -f", "with -a -b -c -d and 2 more"),
        ("-DA='", "-DA=' -g", "with -g"),
    ],
)
def test_the_difference_of_two_command_lines_is_their_words(old: str, new: str, text: str) -> None:
    assert difference(old, new) == text


@pytest.mark.parametrize(
    ("flags", "fits"),
    [("-b -c", True), ("-a -b -c -d", True), ("-c -b", False), ("-a -d", False), ("-a -b -c -d -e", False)],
)  # fmt: skip
def test_flags_of_the_environment_are_a_part_of_the_tree_s_in_their_order(flags: str, fits: bool) -> None:
    """CMake adds those of its platform files."""
    assert (
        not list(conflicts(parse("CMAKE_C_FLAGS:STRING=-a -b -c -d"), {"CFLAGS": flags}, Path("/")))
    ) == fits


def test_a_compiler_may_have_arguments_and_another_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = program(tmp_path / "bin/g++", "")
    (tmp_path / "c++").symlink_to(compiler)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    cache = parse(f"CMAKE_CXX_COMPILER:FILEPATH={compiler}")
    for fitting in ("g++", "g++ -m64", f"{tmp_path}/c++", str(compiler)):
        for name in ("CXX", "CMAKE_CXX_COMPILER"):
            assert list(conflicts(cache, {name: fitting}, tmp_path)) == []
    assert len(list(conflicts(cache, {"CXX": "clang++ -m64", "CMAKE_BUILD_TYPE": "x"}, tmp_path))) == 1


def test_all_conflicts_are_named_and_missing_sources_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    cache = parse(
        f"CMAKE_CACHEFILE_DIR:INTERNAL={tmp_path}/link", "CMAKE_HOME_DIRECTORY:INTERNAL=/gone",
        "CMAKE_C_FLAGS:STRING=-a", "CMAKE_CXX_FLAGS:STRING=-a",
    )  # fmt: skip
    found = list(conflicts(cache, {"CFLAGS": "-b", "CXXFLAGS": "-c", "LDFLAGS": ""}, tmp_path))
    assert [sentence.split()[0] for sentence in found] == ["/gone:", "$CFLAGS", "$CXXFLAGS"]


def test_a_tree_that_moved_is_noticed(configured: CMakeCache, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    (found,) = conflicts(configured, {}, tmp_path / "moved")
    assert re.findall(rf"{tmp_path}(?:/moved)?", found) == [str(tmp_path), f"{tmp_path}/moved"]


# ---- the whole swap ----------------------------------------------------------------------------------------------


class Tree:
    """A build folder whose cmake and ninja are scripts."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.build = folder / "build"
        self.build.mkdir()
        self.path = self.build / "CMakeCache.txt"
        self.python = fake_python(folder, answer={"include": str(folder / "include"), "prefix": PREFIX})
        (self.build / "build.ninja").write_text(NINJA_FILE.format(include="/opt/env/include/python3.12"))
        text = load(cache)
        text.set("CMAKE_COMMAND", str(self.program("cmake", "exit 0")))
        text.set("CMAKE_MAKE_PROGRAM", str(self.ninja(["python.o"], {})))
        text.set("CMAKE_CACHEFILE_DIR", str(self.build))
        text.set("CMAKE_HOME_DIRECTORY", str(folder))
        self.path.write_text(str(text))
        self.original = self.path.read_bytes()

    def program(self, name: str, body: str) -> Path:
        return program(self.build.parent / name, body)

    def ninja(self, steps: list[str], why: Mapping[str, str]) -> Path:
        said = [f"ninja explain: {line}" for line in why.values()]
        said += [f"::step::Building CXX object {step}" for step in steps]
        return self.program("ninja", "cat <<'EOF'\n" + "\n".join(said) + "\nEOF")

    def swap(self, **environment: str) -> python_swap.Report:
        return swap(self.build, self.python, environment=environment)

    def call(self, command: str, *words: str) -> int:
        """Call the command line for the tree and its Python; return the exit code."""
        return command_line.main([command, str(self.build), "--python", str(self.python), *words])

    def left_overs(self) -> list[str]:
        return sorted(name for name in os.listdir(self.build) if "undo" in name or name[0] == ".")


@pytest.fixture
def tree(tmp_path: Path, caches: Mapping[str, Path]) -> Tree:
    return Tree(tmp_path, caches["3.12"])


def test_a_swap_reports_and_leaves_the_new_cache_and_the_original(tree: Tree) -> None:
    report = tree.swap()
    assert (report.before, report.after, report.backend) == ("3.12", "3.11", "setup.py")
    assert (report.steps, report.objects, report.core) == (1, 1, 0)
    assert "python3.11" in load(tree.path)["CMAKE_PREFIX_PATH"].value
    assert (tree.build / "CMakeCache.txt.orig").read_bytes() == tree.original
    assert tree.left_overs() == []


def test_the_same_python_again_needs_no_cmake_unless_one_of_cmakes_files_has_changed(tree: Tree) -> None:
    environment = tree.build.parent / "env"
    for folder in ("bin", "include/python3.12"):
        (environment / folder).mkdir(parents=True)
    (environment / "include/python3.12/Python.h").touch()
    tree.path.write_text(tree.path.read_text().replace(PREFIX, str(environment)))

    def python(version: str) -> Path:
        answer = vars(facts(version, prefix=str(environment)))
        return fake_python(tree.build.parent, answer=answer).rename(environment / "bin" / "python3")

    tree.python = python("3.12.1")
    tree.program("cmake", "exit 3")
    report = tree.swap()
    assert (report.before, report.after, report.changes, report.steps) == ("3.12", "3.12", (), 1)
    tree.program("ninja", "echo '::step::Re-running CMake...'")
    with pytest.raises(RegenerateError, match="exit code 3"):
        tree.swap()
    tree.ninja(["python.o"], {})
    python("3.12.2")
    with pytest.raises(RegenerateError, match="exit code 3"):
        tree.swap()


def test_a_dirty_core_object_is_refused_by_name_with_the_reason(tree: Tree) -> None:
    tree.ninja(["core.o", "python.o"], {"core.o": "command line changed for core.o"})
    changed = NINJA_FILE.replace("FLAGS = -O2\n", "FLAGS = -O3\n").format(
        include="/opt/env/include/python3.11"
    )
    tree.program("cmake", f"cat > '{tree.build}/build.ninja' <<'EOF'\n{changed}\nEOF")
    with pytest.raises(TreeRefused) as refusal:
        tree.swap()
    headline, step = str(refusal.value).splitlines()
    assert re.findall(r"\d+", headline) == ["1", "1"]
    assert re.fullmatch(r" +core\.o \[c10\]: .*\(-O2 became -O3\)", step)
    assert tree.path.read_bytes() == tree.original
    assert tree.left_overs() == []


def test_of_many_dirty_objects_the_first_are_named_and_all_counted(tree: Tree) -> None:
    """ninja knows no target of these: they count as libtorch's."""
    tree.ninja([f"unknown{number}.o" for number in range(50)], {})
    with pytest.raises(TreeRefused) as refusal:
        tree.swap()
    lines = str(refusal.value).splitlines()
    assert "50 files" in lines[0]
    assert (len(lines), lines[-1]) == (22, "  ... and 30 more")


def test_what_cmake_wrote_for_a_refused_swap_is_undone_with_its_time_stamp(tree: Tree) -> None:
    # A header that lists the compiler's flags: written for the refused flags and back again, it would be newer than
    # all the objects that include it.
    header = tree.build / "macros.h"
    header.write_text("-O2")
    os.utime(header, (1_000_000_000, 1_000_000_000))
    tree.ninja(["core.o"], {})
    tree.program("cmake", f"echo '-O3' > '{header}'; touch '{tree.build}/build.ninja'")
    with pytest.raises(TreeRefused):
        tree.swap()
    assert tree.path.stat().st_mtime_ns >= (tree.build / "build.ninja").stat().st_mtime_ns, "CMake runs first"
    assert (header.read_text(), header.stat().st_mtime) == ("-O2", 1_000_000_000)


def test_a_failing_cmake_brings_the_cache_back_and_is_quoted(tree: Tree) -> None:
    tree.program("cmake", "echo 'CMake Error: no NumPy'; exit 1")
    with pytest.raises(RegenerateError, match="CMake Error: no NumPy"):
        tree.swap()
    assert (tree.build / "python-swap.log").read_text() == "CMake Error: no NumPy\n"
    assert tree.path.read_bytes() == tree.original
    assert tree.left_overs() == []


def test_an_interrupted_swap_brings_the_cache_back(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(python_swap, "regenerate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tree.swap()
    assert tree.path.read_bytes() == tree.original
    assert tree.left_overs() == []


def test_copies_of_a_swap_that_was_killed_before_are_none_of_the_next_swaps(tmp_path: Path) -> None:
    """The undo would put back a file that no longer exists; a folder that CMake removed comes back."""
    header = write(tmp_path / "folder" / "kept.h", "kept")
    write(tmp_path / f"{undo_folder.UNFINISHED}.new" / "former.h")
    write(tmp_path / f"{undo_folder.UNFINISHED}.done" / "former.h")
    undo_folder.prepare(tmp_path, [header])
    shutil.rmtree(header.parent)
    assert undo_folder.undo(tmp_path)
    undo_folder.forget(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [header]
    assert header.read_text() == "kept"


def test_a_swap_that_was_killed_is_undone_by_the_next_and_on_request(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, command_line.__file__, "apply", str(tree.build), "--python", str(tree.python)]

    def kill() -> None:
        tree.program("cmake", "kill -9 $PPID")
        assert subprocess.run(command, env={"PATH": os.defpath}).returncode == -9
        assert tree.left_overs() == ["python-swap.undo"]
        assert "python3.12" not in load(tree.path)["CMAKE_PREFIX_PATH"].value

    kill()
    tree.program("cmake", "exit 0")
    assert tree.swap().before == "3.12"
    assert tree.left_overs() == []
    tree.path.write_bytes(tree.original)
    kill()
    for said in ("-- the unfinished swap is undone\n", "-- there is no unfinished swap\n"):
        assert command_line.main(["restore", str(tree.build)]) == 0
        assert capsys.readouterr().out == said
        assert tree.path.read_bytes() == tree.original
    assert tree.left_overs() == []
    assert command_line.main(["restore", str(tree.build / "nowhere")]) == 1


@pytest.mark.parametrize(
    ("cmake", "said"),
    [
        ("s/^CMAKE_CXX_FLAGS:STRING=.*/CMAKE_CXX_FLAGS:STRING=-O0/", "CMAKE_CXX_FLAGS"),
        (
            "$a_Python_INTERPRETER_PROPERTIES:INTERNAL=Python;3;9;2;64;<none>;cpython-39-x86_64-linux-gnu;abi3;/usr",
            r"CMake found Python 3\.9\.2 .* instead of 3\.11\.7",
        ),
    ],
)
def test_what_cmake_changed_beside_the_python_is_refused_and_undone(
    tree: Tree, cmake: str, said: str
) -> None:
    tree.program("cmake", f"sed -i '{cmake}' '{tree.path}'")
    with pytest.raises(TreeRefused, match=said):
        tree.swap()
    assert tree.path.read_bytes() == tree.original


@pytest.mark.parametrize(
    ("change", "environment", "said"),
    [
        ("UNINITIALIZED=Ninja", {}, "configured for Unix Makefiles"),
        ("python", {}, "names no Python"),
        ("prefix", {}, "with a Python in the prefix /opt/env"),
        ("", {"CXXFLAGS": "-O3"}, r"\$CXXFLAGS is '-O3'"),
    ],
)
def test_a_tree_or_an_environment_that_does_not_fit_is_refused_before_anything_changes(
    tree: Tree, change: str, environment: dict[str, str], said: str
) -> None:
    text = tree.path.read_text()
    if change == "python":
        text = "\n".join(line for line in text.splitlines() if "python" not in line.lower()) + "\n"
    elif change == "prefix":
        answer = {"prefix": "/opt/other", "include": str(tree.build.parent / "include")}
        tree.python = fake_python(tree.build.parent, answer=answer)
    elif change:
        text = text.replace(change, "UNINITIALIZED=Unix Makefiles")
    tree.path.write_text(text)
    with pytest.raises(TreeRefused, match=said):
        tree.swap(**environment)
    assert tree.path.read_text() == text
    assert sorted(path.name for path in tree.build.iterdir()) == ["CMakeCache.txt", "build.ninja"]


@pytest.fixture
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("plain_environment")
def test_the_command_line_plans_and_ends_with_the_marker_or_prints_json(
    tree: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tree.python.parent}:{os.environ['PATH']}")
    assert command_line.main(["plan", str(tree.build), "--python", tree.python.name]) == 0
    planned = capsys.readouterr().out
    assert "pybind11_DIR: /opt/env/lib/python3.12" in planned
    assert "::megabuild::" not in planned, "the driver would take it for a swap"
    assert tree.path.read_bytes() == tree.original
    assert sorted(path.name for path in tree.build.iterdir()) == ["CMakeCache.txt", "build.ninja"]
    assert tree.call("apply") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "::megabuild:: swap from=3.12 to=3.11 steps=1 core=0"
    tree.path.write_bytes(tree.original)
    assert tree.call("apply", "--json") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["steps"] == 1
    assert captured.err == "::megabuild:: swap from=3.12 to=3.11 steps=1 core=0\n"


@pytest.mark.usefixtures("plain_environment")
def test_exit_codes_tell_a_refusal_from_an_error_and_a_check_changes_nothing(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["verify", str(tree.build)]) == 0
    tree.ninja(["core.o"], {})
    assert command_line.main(["verify", str(tree.build)]) == 9
    assert "core.o [c10]" in capsys.readouterr().err
    assert tree.call("apply") == 9
    assert "core.o" in capsys.readouterr().err
    assert tree.path.read_bytes() == tree.original
    tree.ninja(["core.o", "python.o"], {})  # a named target comes in addition to the known ones
    assert command_line.main(["verify", str(tree.build), "--python-target", "c10"]) == 0
    assert tree.call("apply", "--python-target", "c10") == 0
    assert command_line.main(["apply", str(tree.build / "nowhere"), "--python", str(tree.python)]) == 1
    assert "nowhere/CMakeCache.txt" in capsys.readouterr().err


def test_steps_are_those_of_the_named_ninja_and_targets(
    tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    last = 'for word do last=$word; done; echo "::step::Building CXX object $last"'
    ninja = tree.program("other-ninja", last)
    assert command_line.main(["steps", str(tree.build), "python.o", "--ninja", str(ninja)]) == 0
    assert capsys.readouterr().out == "torch_python\tBuilding CXX object python.o\n"


@pytest.mark.usefixtures("plain_environment")
@pytest.mark.parametrize(
    ("breaks", "complaint"),
    [
        ("python", "does not run"),
        ("cmake", "failed with exit code 1"),
        ("ninja", "failed: "),
        ("pybind11", "has no pybind11"),
        ("back end", "cannot read"),
        ("undo folder", "python-swap.undo.new"),
    ],
)
def test_a_tree_or_an_interpreter_that_is_not_usable_is_one_line_and_no_refusal(
    tree: Tree, breaks: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if breaks == "python":
        tree.python.unlink()
    elif breaks == "pybind11":
        answer = {"include": str(tree.build.parent / "include"), "prefix": PREFIX, "pybind11_cmake": ""}
        fake_python(tree.build.parent, answer=answer)
    elif breaks == "back end":
        (tree.build / skbuild_backend.INFO).write_text("{")
    elif breaks == "undo folder":
        (tree.build / "python-swap.undo.new").touch()
    else:
        tree.program(breaks, "exit 1")
    assert tree.call("apply") == 1
    captured = capsys.readouterr()
    first, *_ = captured.err.splitlines()
    assert first.startswith("cmake_python_swap: ")
    assert complaint in captured.err
    assert (captured.out, tree.path.read_bytes()) == ("", tree.original)


def test_other_headers_behind_the_same_path_make_the_python_side_compile_again(tree: Tree) -> None:
    header = tree.build.parent / "include" / "Python.h"
    for name in ("core.o", "python.o"):
        (tree.build / name).touch()
    tree.swap()
    tree.path.write_bytes(tree.original)
    tree.swap()
    tree.path.write_bytes(tree.original)
    assert (tree.build / "python.o").exists(), "nothing had changed"
    header.write_text("#define PY_MICRO_VERSION 8\n")
    os.utime(header, (1_000_000_000, 1_000_000_000))
    tree.program("ninja", f"[ -e '{tree.build}/python.o' ] || echo '::step::Building CXX object python.o'")
    assert tree.swap().objects == 1
    assert not (tree.build / "python.o").exists()
    assert (tree.build / "core.o").exists()


@pytest.mark.parametrize(
    ("change", "is_changed"),
    [
        ("", False),
        ("include/Python.h", True),
        ("numpy/deep/ndarray.h", True),
        ("pybind11/cast.h", True),
        ("include/notes.txt", False),
        ("new", True),
        ("gone", True),
        ("another folder", False),  # the command lines change then
        ("no record", False),
        ("damaged", False),
        ("list", False),
    ],
)
def test_headers_of_python_and_its_packages_count_with_their_contents(
    change: str, is_changed: bool, tmp_path: Path
) -> None:
    files = (
        "include/Python.h",
        "numpy/deep/ndarray.h",
        "pybind11/cast.h",
        "include/notes.txt",
        "include/other.h",
    )
    for name in files:
        write(tmp_path / name, "1")
    folders = {
        name: str(tmp_path / name.partition("_")[0])
        for name in ("include", "numpy_include", "pybind11_include")
    }
    target = replace(facts(), **folders)  # type: ignore[arg-type]
    python_headers.record(tmp_path, target)
    record = tmp_path / python_headers.RECORD
    match change:
        case "new":
            write(tmp_path / "include/new.h")
        case "gone":
            (tmp_path / "include/other.h").unlink()
        case "another folder":
            target = replace(target, include=str(tmp_path / "numpy"))
        case "no record":
            record.unlink()
        case "damaged":
            record.write_text("{")
        case "list":
            record.write_text("[]")
        case name if name:
            write(tmp_path / name, "2")
    assert python_headers.changed(tmp_path, target) == is_changed


def test_only_objects_of_the_python_side_are_forgotten(tmp_path: Path) -> None:
    write(
        tmp_path / "build.ninja",
        NINJA_FILE.format(include="/include")
        + """build missing.o: cc missing.cpp
  OBJECT_DIR = torch/CMakeFiles/torch_python.dir
build python.so: cc python.o
  OBJECT_DIR = torch/CMakeFiles/torch_python.dir
""",
    )
    for name in ("core.o", "python.o", "python.so"):
        write(tmp_path / name)
    assert python_headers.forget_objects(tmp_path, ["torch_python"]) == 1
    assert {path.name for path in tmp_path.glob("*.*o")} == {"core.o", "python.so"}


# ---- scikit-build-core ------------------------------------------------------------------------------------------


@pytest.fixture
def skbuild_tree(tree: Tree) -> Tree:
    """A tree of scikit-build-core's, with a pip that notes what it is asked to do, and a CMake that must not be run."""
    info = {"source_dir": "/tree", "skbuild_path": "/opt/env/lib/python3.12/site-packages/scikit_build_core"}
    (tree.build / ".skbuild-info.json").write_text(json.dumps(info))
    tree.program("cmake", "exit 3")
    answers = tree.python.read_text().removeprefix("#!/bin/sh\n")
    pip = f'[ -x "$CMAKE_EXECUTABLE" ] || exit 9; printf "%s\\n" "$@" >"{tree.build}/pip"; exit'
    tree.program("python", f'if [ "$2" = pip ]; then {pip}; fi\n{answers}')
    return tree


def test_the_back_end_configures_in_the_place_of_cmake_and_its_state_comes_back_after_a_refusal(
    skbuild_tree: Tree,
) -> None:
    info = (skbuild_tree.build / ".skbuild-info.json").read_text()
    (skbuild_tree.build.parent / skbuild_backend.TEMPORARY / "of a killed call").mkdir(parents=True)
    skbuild_tree.ninja(["core.o"], {})
    assert swap(skbuild_tree.build, skbuild_tree.python, environment={}, only_plan=True).steps is None
    assert not (skbuild_tree.build / "pip").exists()
    with pytest.raises(TreeRefused):
        skbuild_tree.swap()
    assert (skbuild_tree.build / ".skbuild-info.json").read_text() == info
    assert skbuild_tree.left_overs() == [".skbuild-info.json"]
    skbuild_tree.ninja(["python.o"], {})
    report = skbuild_tree.swap()
    assert (report.backend, report.core) == ("scikit-build-core", 0)
    assert json.loads((skbuild_tree.build / ".skbuild-info.json").read_text()) == {
        "source_dir": "/tree",
        "skbuild_path": "/opt/env/lib/python3.11/site-packages/scikit_build_core",
    }
    asked = (skbuild_tree.build / "pip").read_text().split()
    assert {"-Cbuild.targets=list_install_components", "-Cinstall.components=none", "-Cwheel.exclude=*"} <= {
        *asked
    }


@pytest.mark.parametrize(
    ("state", "complaint"),
    [
        ("{", "cannot read"),
        ("[]", "does not name"),
        ("{}", "does not name"),
        ('{"skbuild_path": "/"}', "has no"),
    ],
)
def test_a_back_end_that_would_configure_from_scratch_is_not_called(
    state: str, complaint: str, tmp_path: Path
) -> None:
    assert skbuild_backend.claim(tmp_path, "/python", "") == {}, "not one of scikit-build-core's trees"
    (tmp_path / skbuild_backend.INFO).write_text(state)
    with pytest.raises(skbuild_backend.SkbuildError, match=complaint):
        skbuild_backend.claim(tmp_path, "/python", "")


def test_a_failed_configuration_leaves_its_whole_log(skbuild_tree: Tree, tmp_path: Path) -> None:
    skbuild_tree.program("python", "seq 100; exit 3")
    log = tmp_path / "log"
    with pytest.raises(skbuild_backend.SkbuildError, match="exit code 3"):
        skbuild_backend.configure(skbuild_tree.build.parent, str(skbuild_tree.python), log=log)
    assert log.read_text().split() == [str(number) for number in range(1, 101)]


def test_what_pytorch_itself_keeps_out_of_the_wheel_stays_out(
    skbuild_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = skbuild_tree.build.parent
    (folder / "pyproject.toml").write_text('[tool.scikit-build]\nwheel.exclude = ["*.a"]\n')
    places = write(folder / "places.txt", "lib/libc10.so\n")
    monkeypatch.setattr(sys, "executable", str(skbuild_tree.python))
    words = ["wheel", str(folder), str(folder / "dist"), "--leave-out", str(places)]
    assert command_line.main(words) == 0
    asked = (skbuild_tree.build / "pip").read_text().split()
    excluded = [
        word.removeprefix("-Cwheel.exclude=") for word in asked if word.startswith("-Cwheel.exclude=")
    ]
    assert excluded == ["*.a", "/torch/lib/libc10.so"]


@pytest.mark.parametrize("code", [0, 3])
@pytest.mark.parametrize("has_log", [True, False])
def test_the_back_end_is_called_for_this_tree_and_environment_alone(
    code: int, has_log: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No index, file or cache of pip's may bring another back end, and temporary files stay in the tree."""
    (tmp_path / "tree").mkdir()
    script = (
        f'[ "$2" = pip ] || exit 9; pwd; printf "%s\\n" "$TMPDIR" "$PIP_CONFIG_FILE" "$@" >{tmp_path}/said'
    )
    python = program(tmp_path / "python", f"{script}; ls $TMPDIR >>{tmp_path}/said; exit {code}")
    monkeypatch.chdir(tmp_path)
    former = write(tmp_path / "tree" / skbuild_backend.TEMPORARY / "former")
    log = tmp_path / "log" if has_log else None
    with pytest.raises(skbuild_backend.SkbuildError, match=f"exit code {code}") if code else nullcontext():
        skbuild_backend._call(Path("tree"), str(python), Path("dist"), ["a=b"], log=log)
    temporary = str(former.parent)
    assert (tmp_path / "said").read_text().split() == [
        temporary, os.devnull, "-m", "pip", "wheel", ".", "-v", "--wheel-dir", f"{tmp_path}/dist",
        "--no-build-isolation", "--no-deps", "--no-index", "--no-cache-dir", "--disable-pip-version-check",
        "-Ca=b", "cmake",
    ]  # fmt: skip
    assert former.parent.exists() == bool(code), "a failure can be looked into"
    assert log is None or log.read_text() == f"{tmp_path}/tree\n"


def test_the_interpreter_of_the_back_end_s_state_is_the_new_one(tmp_path: Path) -> None:
    write(
        tmp_path / skbuild_backend.INFO, json.dumps({"skbuild_path": "/a", "python_executable": "/b", "c": 1})
    )
    claimed = skbuild_backend.claim(tmp_path, "/python", "/skbuild")
    state = {"skbuild_path": "/skbuild", "python_executable": "/python", "c": 1}
    assert {name: json.loads(text) for name, text in claimed.items()} == {skbuild_backend.INFO: state}


def test_packing_a_wheel_asks_ninja_after_cmake_and_configuring_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(skbuild_backend, "_call", lambda *words, **more: calls.append((*words, more)))
    write(tmp_path / "pyproject.toml")
    skbuild_backend.wheel(tmp_path, "/python", tmp_path / "dist", ["lib/libc10.so"])
    skbuild_backend.configure(tmp_path, "/python")
    wheel, configure = calls
    assert wheel == (
        tmp_path,
        "/python",
        tmp_path / "dist",
        ["wheel.exclude=/torch/lib/libc10.so"],
        {"swapped": True},
    )
    assert configure[-1] == {"log": None}


@pytest.mark.parametrize("swapped", [True, False])
@pytest.mark.parametrize("code", [0, 3])
def test_the_back_end_learns_whether_cmake_has_failed(code: int, swapped: bool, tmp_path: Path) -> None:
    """After a swap, ninja is asked next; of this tree, which is not configured, it says nothing."""
    called = program(tmp_path / "cmake", "false")
    skbuild_backend._write_cmake(called, tmp_path, swapped=swapped)
    program(tmp_path / "bin" / "cmake", f"exit {code}")
    environ = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run([called, "-S", "."], env=environ, capture_output=True, text=True, check=False)
    assert ("build.ninja" in done.stderr) == (swapped and code == 0), "asked only after a success"
    assert done.returncode == (1 if swapped and code == 0 else code)
    assert subprocess.run([called, "--build", "."], env=environ, check=False).returncode == code


def test_a_cross_compiled_tree_agrees_although_cmake_has_asked_for_no_soabi(tmp_path: Path) -> None:
    def disagreements(version: str, soabi: str) -> list[str]:
        properties = f"Python;{version.replace('.', ';')};64;<none>;{soabi};abi3;/usr;/usr;/usr;/usr"
        path = tmp_path / "CMakeCache.txt"
        path.write_text(f"_Python_INTERPRETER_PROPERTIES:INTERNAL={properties}\n")
        return list(python_entries.disagreements(load(path), facts("3.11.7")))

    assert disagreements("3.11.7", "") == []
    assert disagreements("3.11.7", "cpython-311-x86_64-linux-gnu") == []
    assert len(disagreements("3.11.7", "cpython-312-x86_64-linux-gnu")) == 1
    assert len(disagreements("3.12.1", "")) == 1
