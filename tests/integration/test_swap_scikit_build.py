"""The Python swap and packing under the real scikit-build-core: a small project with a core library and a module.

The project's CMake writes a source of the core library on every run, as PyTorch's does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from cmake_python_swap import python_swap, skbuild_backend
from megabuild.providers.local import interpreters

FILES = {
    "pyproject.toml": """
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "tiny"
version = "1"
[tool.scikit-build]
build-dir = "build"
wheel.install-dir = "torch"
""",
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.18)
project(tiny C)
find_package(Python COMPONENTS Interpreter Development.Module REQUIRED)
file(WRITE ${CMAKE_BINARY_DIR}/empty.c "typedef int empty;\n")
add_library(core STATIC core.c ${CMAKE_BINARY_DIR}/empty.c)
set_target_properties(core PROPERTIES POSITION_INDEPENDENT_CODE ON)
Python_add_library(torch_python MODULE WITH_SOABI module.c)
target_link_libraries(torch_python PRIVATE core)
install(TARGETS torch_python core DESTINATION .)
""",
    "core.c": "int core(void) { return 1; }\n",
    "module.c": """
#include <Python.h>
int core(void);
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "torch_python", .m_size = -1};
PyMODINIT_FUNC PyInit_torch_python(void) { return core() ? PyModule_Create(&definition) : NULL; }
""",
}


@dataclass(kw_only=True)
class Project:
    """The project, and virtual environments of several Pythons that take turns at one place."""

    work: Path

    @property
    def build(self) -> Path:
        return self.work / "tiny" / "build"

    @property
    def prefix(self) -> Path:
        return self.work / "prefix"

    def install(self, name: str, python: Path) -> None:
        """Make a Python's environment at the prefix, and move it away."""
        self.must([str(python), "-m", "venv", str(self.prefix)])
        pip = [sys.executable, "-m", "pip", "--python", str(self.prefix / "bin" / "python")]
        self.must([*pip, "install", "-q", "--disable-pip-version-check", "scikit-build-core", "pip>=23.1"])
        self.prefix.rename(self.work / name)

    def use(self, name: str) -> None:
        """Put a Python's environment to the prefix."""
        if self.prefix.exists():
            self.prefix.rename(self.work / (self.prefix / "name").read_text())
        (self.work / name).rename(self.prefix)
        (self.prefix / "name").write_text(name)

    def wheel(self) -> list[str]:
        """Build a wheel without the core library, with the Python at the prefix; returns the binaries in it."""
        shutil.rmtree(self.work / "dist", ignore_errors=True)
        python = str(self.prefix / "bin" / "python")
        skbuild_backend.wheel(self.work / "tiny", python, self.work / "dist", ["libcore.a"])
        (wheel,) = (self.work / "dist").glob("*.whl")
        return [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".a"))]

    def core_times(self) -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in self.build.rglob("core.dir/**/*.o")}

    def must(self, command: Sequence[str]) -> None:
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_core_is_compiled_once_and_never_while_a_wheel_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [name for name in interpreters.find(print) if not name.endswith("t")]
    if len(names) < 2 or not (shutil.which("cmake") and shutil.which("ninja") and find_spec("pip")):
        pytest.skip("needs two Pythons with headers, cmake, ninja and pip")
    for name in [name for name in os.environ if name.endswith("FLAGS")]:
        monkeypatch.delenv(name)
    first, second = names[0], names[-1]
    project = Project(work=tmp_path)
    for name in (first, second):
        project.install(name, interpreters.find(print)[name].executable)
    (tmp_path / "tiny").mkdir()
    for file, text in FILES.items():
        (tmp_path / "tiny" / file).write_text(text)
    project.use(first)
    skbuild_backend.configure(tmp_path / "tiny", str(project.prefix / "bin" / "python"))
    assert not project.core_times(), "compiled, though only asked to configure"
    project.must(["ninja", "-C", str(project.build)])
    core = project.core_times()
    assert len(core) == 2
    for before, after in ((first, first), (first, second)):
        project.use(after)
        report = python_swap.swap(project.build, project.prefix / "bin" / "python", environment={})
        assert (report.before, report.after, report.backend) == (before, after, "scikit-build-core")
        assert (report.objects, report.core) == (before != after, 0)
        info = json.loads((project.build / ".skbuild-info.json").read_text())
        assert f"/python{after}/" in info["skbuild_path"]
        (module,) = project.wheel()
        assert f"cpython-{after.replace('.', '')}" in module
        assert project.core_times() == core
    os.utime(project.work / "tiny" / "core.c")
    with pytest.raises(skbuild_backend.SkbuildError, match="failed in"):
        project.wheel()
    assert project.core_times() == core
