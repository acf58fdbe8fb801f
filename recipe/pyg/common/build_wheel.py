"""Run an extension's unchanged setup.py so that it uses all processors and an object cache.

Run ``build_wheel.py DIST_FOLDER`` in the folder of the sources, with the Python and PyTorch to build for.

* Most of these setup.py files set ``use_ninja=False``; with ninja, PyTorch would compile one module of two or three
  files after the other. This script compiles every module with its own ninja. The jobserver of ``MAKEFLAGS`` limits
  their jobs (``CPU_COUNT`` jobs if there is none). ``MAX_JOBS`` is removed from the environment: PyTorch would pass it
  to ninja as ``-j``, and ninja would ignore the jobserver.
* An object cache compares preprocessed text. To make it the same for every Python, the compiler gets only the flags of
  ``CFLAGS`` and ``CPPFLAGS``, not those of Python; the paths of PyTorch's headers do not depend on the Python; and two
  macros that only include Python.h are removed. One is PyTorch's, for extensions that use its Python side; the other is
  the extensions' own, for a function that exists only on Windows. A source that needs Python.h then fails to compile.
  Measured with g++ 12 on ``rw_cpu.cpp`` of torch_sparse: 25 CPU seconds with the macros, 18 without, 1.3 for the second
  Python; both Pythons' objects, compiled from scratch, are equal byte by byte.
* ``BUILD_ENV_LINK`` (optional) is a link to the environment with PyTorch's headers and libraries. It replaces the
  environment's path, whose length depends on the work folder. Further links next to it replace folders whose names have
  the Python's version: the cache finds nvcc's objects by their command, not by text.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from jobserver import Jobserver, run_all

#: Macros that only include Python.h, on Linux.
_FOR_PYTHON = ("-DTORCH_API_INCLUDE_EXTENSION_H", "WITH_PYTHON")

#: Folders of an environment that belong to one Python.
_OF_ONE_PYTHON = re.compile(r"/(?P<kind>lib|include)/python3\.\d+t?(?=/|$)")

#: The first version that uses a jobserver.
_NINJA = (1, 13)


class ModulesAtOnce(cpp_extension.BuildExtension):
    """PyTorch's build_ext, with one process for each extension module."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options["use_ninja"] = True
        super().__init__(*args, **options)

    def build_extensions(self) -> None:
        """Compile and link all modules; raise RuntimeError with the names of those that failed."""
        _constant_flags(self.compiler)
        # the largest first, so that a small one ends last
        modules = sorted(self.extensions, key=_weight, reverse=True)
        self._objects = sum(len(module.sources) for module in modules)
        # the first object may take minutes: this line, in ninja's format, shows the total until then
        names = [_short_name(module) for module in modules]
        first = f"[0/{len(modules[0].sources)} 0.0s {names[0]} of {self._objects}]"
        print(first, *names, flush=True)
        tasks = [(module.name, partial(self._build_one, module)) for module in modules]
        with _jobserver() as jobserver:
            os.environ.pop("MAX_JOBS", None)
            failed = run_all(tasks, jobserver)
        if failed:
            raise RuntimeError(f"modules failed to compile: {', '.join(failed)}")

    def _add_compile_flag(self, extension: Any, flag: str) -> None:
        if flag not in _FOR_PYTHON or sys.platform != "linux":
            super()._add_compile_flag(extension, flag)

    def _build_one(self, module: Any) -> None:
        self.extensions = [module]
        if sys.platform == "linux":
            module.define_macros = [macro for macro in module.define_macros if macro[0] not in _FOR_PYTHON]
        name = _short_name(module)
        # each ninja counts only its own objects; the reader of the log adds them up by the module's name
        os.environ["NINJA_STATUS"] = f"[%f/%t %es {name} of {self._objects}] "
        # one folder per module, because PyTorch always writes build.ninja under the same name
        self.build_temp = str(Path("build", "temp", name))
        module.include_dirs = _neutral_includes(module.include_dirs)
        module.library_dirs = _neutral_libraries(module.library_dirs)
        self.compiler.include_dirs = _neutral_includes(self.compiler.include_dirs)
        super().build_extensions()


@contextlib.contextmanager
def _jobserver() -> Iterator[Jobserver]:
    """Join the jobserver of ``MAKEFLAGS``, or create one for the time of the body."""
    jobserver = Jobserver.from_makeflags(os.environ.get("MAKEFLAGS", ""))
    if jobserver is not None:
        yield jobserver
        return
    jobserver = Jobserver.create(_jobs())
    os.environ["MAKEFLAGS"] = jobserver.makeflags
    try:
        yield jobserver
    finally:
        jobserver.remove()


def _short_name(module: Any) -> str:
    _, _, name = module.name.rpartition(".")
    return str(name)


def _constant_flags(compiler: Any) -> None:
    # conda's CXXFLAGS repeat its CFLAGS, and add flags that PyTorch's own would contradict
    names = ["CFLAGS", "CXXFLAGS", "CPPFLAGS"]
    if "CONDA_BUILD" in os.environ:
        names.remove("CXXFLAGS")
    flags = ["-fPIC", "-DNDEBUG"]
    for name in names:
        flags += shlex.split(os.environ.get(name, ""))
    compiler.set_executable("compiler_so", [compiler.compiler_so[0], *flags])


def _neutral_includes(folders: Iterable[str]) -> list[str]:
    """Return header folders with the link in their paths; PyTorch's are searched in the environment first."""
    link = os.environ.get("BUILD_ENV_LINK")
    if not link:
        return list(folders)
    torch = Path(cpp_extension.__file__).absolute().parents[1]
    package = str(torch / "include")
    is_cross_compiling = os.environ.get("CONDA_BUILD_CROSS_COMPILATION") == "1"
    result = []
    for folder in folders:
        if folder == package or folder.startswith(package + os.sep):
            result.append(os.path.join(link, "include") + folder[len(package) :])
            if is_cross_compiling:
                continue  # the torch that runs on this machine is for another processor
        result.append(_by_link(folder, link))
    return list(dict.fromkeys(result))


def _neutral_libraries(folders: Iterable[str]) -> list[str]:
    prefix = os.environ.get("PREFIX")
    if not prefix:
        return list(folders)
    return [os.path.join(prefix, "lib"), *folders]


def _by_link(folder: str, link: str) -> str:
    """Return the folder's path through the link, which is the same for every work folder and every Python."""
    target = os.path.realpath(link)
    if folder != target and not folder.startswith(target + os.sep):
        return folder
    inside = folder[len(target) :]
    versioned = _OF_ONE_PYTHON.match(inside)
    if versioned is None:
        return link + inside
    # a link of its own: nvcc's objects are found only if the whole command is the same
    without_version = f"{link}-{versioned['kind']}"
    with contextlib.suppress(FileExistsError):  # another module's process was faster
        os.symlink(target + versioned[0], without_version)
    return without_version + inside[versioned.end() :]


def _weight(module: Any) -> int:
    return sum(os.path.getsize(source) for source in module.sources)


def _jobs() -> int:
    for name in ("MAX_JOBS", "CPU_COUNT"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value):
            return int(value)
    return os.cpu_count() or 1


def _check_ninja() -> None:
    found = "none"
    path = shutil.which("ninja")
    if path:
        found = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.strip()
    version = re.match(r"(\d+)\.(\d+)", found)
    if version is None or (int(version[1]), int(version[2])) < _NINJA:
        major, minor = _NINJA
        sys.exit(f"error: build_wheel.py needs ninja >= {major}.{minor} on PATH, found: {found}")


def main(dist_folder: str) -> None:
    """Build the wheel of the project in the working folder into ``dist_folder``."""
    _check_ninja()
    cpp_extension.BuildExtension = ModulesAtOnce
    sys.argv = ["setup.py", "bdist_wheel", "--dist-dir", dist_folder]
    sys.path.insert(0, os.getcwd())
    runpy.run_path("setup.py", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
