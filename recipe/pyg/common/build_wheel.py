"""Runs an extension's setup.py so that it fills the machine, without changing a byte of it.

``build_wheel.py DIST_FOLDER`` in the folder of the sources, with the Python and PyTorch to build for.

* Most of these setup.py files ask PyTorch for ``use_ninja=False``, and PyTorch runs ninja for one module after the
  other, each of two or three files. Here every module is compiled by a ninja of its own, as many at once as the
  jobserver of ``MAKEFLAGS`` has tokens (``CPU_COUNT`` jobs where there is none). ``-j`` would make ninja leave the
  jobserver: ``MAX_JOBS``, which PyTorch makes it from, is taken out of the environment.
* What does not use Python's C API is the same compile for every Python, so that an object cache finds it again (by what
  the preprocessor makes of it): the compiler gets the flags of ``CFLAGS`` and ``CPPFLAGS`` only, not those that the
  Python was compiled with; PyTorch's headers have names that do not depend on the Python; and two macros that only
  bring Python.h in are left out. One is PyTorch's, for extensions that want Python's side of PyTorch with ``torch.h``;
  the other is these extensions' own, for a function that exists on Windows only. Should a source need what they bring
  in, it does not compile. Measured with g++ 12 on ``rw_cpu.cpp`` of torch_sparse: 25 CPU seconds with the macros, 18
  without, 1.3 for the second Python, where both compiled from scratch are equal byte by byte.
* ``BUILD_ENV_LINK`` (optional) is a link to the environment with PyTorch's headers and libraries, used in place of the
  environment's own path, whose length differs from one work folder to another.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils import cpp_extension

from jobserver import Jobserver, run_all

#: Macros that do nothing but include Python.h, on Linux.
_FOR_PYTHON = ("-DTORCH_API_INCLUDE_EXTENSION_H", "WITH_PYTHON")

#: The first that takes part in a jobserver.
_NINJA = (1, 13)


class ModulesAtOnce(cpp_extension.BuildExtension):
    """PyTorch's build_ext, with a process for every extension module."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options["use_ninja"] = True
        super().__init__(*args, **options)

    def build_extensions(self) -> None:
        """Compile and link all modules; fails when one of them fails."""
        _constant_flags(self.compiler)
        own = None
        jobserver = Jobserver.from_makeflags(os.environ.get("MAKEFLAGS", ""))
        if jobserver is None:
            jobserver = own = Jobserver.create(_jobs())
            os.environ["MAKEFLAGS"] = own.makeflags
        os.environ.pop("MAX_JOBS", None)
        self._objects = sum(len(module.sources) for module in self.extensions)
        try:
            # the largest first: the last one to end should be a small one
            modules = sorted(self.extensions, key=_weight, reverse=True)
            # the first object may take minutes: until then this is what whoever reads ninja's output sees
            names = [module.name.rpartition(".")[2] for module in modules]
            print(
                f"[0/{len(modules[0].sources)} 0.0s {names[0]} of {self._objects}] {' '.join(names)}",
                flush=True,
            )
            failed = run_all(
                [(module.name, partial(self._build_one, module)) for module in modules], jobserver
            )
        finally:
            if own is not None:
                own.remove()
        if failed:
            raise RuntimeError(f"these modules did not compile: {', '.join(failed)}")

    def _add_compile_flag(self, extension: Any, flag: str) -> None:
        if flag not in _FOR_PYTHON or sys.platform != "linux":
            super()._add_compile_flag(extension, flag)

    def _build_one(self, module: Any) -> None:
        self.extensions = [module]
        if sys.platform == "linux":
            module.define_macros = [macro for macro in module.define_macros if macro[0] not in _FOR_PYTHON]
        name = module.name.rpartition(".")[2]
        # each ninja counts its own objects: whoever reads their output can add them up
        os.environ["NINJA_STATUS"] = f"[%f/%t %es {name} of {self._objects}] "
        # PyTorch writes a build.ninja into it, always under the same name
        self.build_temp = str(Path("build", "temp", name))
        module.include_dirs = _neutral_includes(module.include_dirs)
        module.library_dirs = _neutral_libraries(module.library_dirs)
        self.compiler.include_dirs = _neutral_includes(self.compiler.include_dirs)
        super().build_extensions()


def _constant_flags(compiler: Any) -> None:
    environment = [os.environ.get(name, "") for name in ("CFLAGS", "CPPFLAGS")]
    flags = ["-fPIC", "-DNDEBUG", *shlex.split(" ".join(environment))]
    compiler.set_executable("compiler_so", [compiler.compiler_so[0], *flags])


def _neutral_includes(folders: Iterable[str]) -> list[str]:
    """Name headers by the link; PyTorch's are looked for in the environment before its Python package."""
    link = os.environ.get("BUILD_ENV_LINK")
    if not link:
        return list(folders)
    package = os.path.join(
        os.path.dirname(os.path.dirname(os.path.abspath(cpp_extension.__file__))), "include"
    )
    result = []
    for folder in folders:
        if folder == package or folder.startswith(package + os.sep):
            result.append(os.path.join(link, "include") + folder[len(package) :])
            if os.environ.get("CONDA_BUILD_CROSS_COMPILATION") == "1":
                continue  # the package that runs here was made for another machine
        result.append(_by_link(folder, link))
    return list(dict.fromkeys(result))


def _neutral_libraries(folders: Iterable[str]) -> list[str]:
    prefix = os.environ.get("PREFIX")
    return [*([os.path.join(prefix, "lib")] if prefix else []), *folders]


def _by_link(folder: str, link: str) -> str:
    target = os.path.realpath(link)
    return link + folder[len(target) :] if folder == target or folder.startswith(target + os.sep) else folder


def _weight(module: Any) -> int:
    return sum(os.path.getsize(source) for source in module.sources)


def _jobs() -> int:
    for name in ("MAX_JOBS", "CPU_COUNT"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value):
            return int(value)
    return os.cpu_count() or 1


def _check_ninja() -> None:
    path = shutil.which("ninja")
    found = subprocess.run([path, "--version"], capture_output=True, text=True).stdout if path else "none"
    version = re.match(r"(\d+)\.(\d+)", found)
    if version is None or (int(version[1]), int(version[2])) < _NINJA:
        sys.exit(
            f"build_wheel.py needs ninja >= {_NINJA[0]}.{_NINJA[1]} on PATH, which takes part in a jobserver; found: "
            f"{found.strip()}"
        )


def main(dist_folder: str) -> None:
    """Build the wheel of the project in the working folder into ``dist_folder``."""
    _check_ninja()
    cpp_extension.BuildExtension = ModulesAtOnce
    sys.argv = ["setup.py", "bdist_wheel", "--dist-dir", dist_folder]
    sys.path.insert(0, os.getcwd())
    runpy.run_path("setup.py", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
