"""Build entry point of the model, with the behaviour of PyTorch's own up to 2.13.

``python setup.py build`` configures into ``build/`` if there is no ``CMakeCache.txt`` yet, compiles, and installs
below ``torch/``; then setuptools packs what lies there. ``--cmake-only`` stops after configuring, ``--cmake``
configures anew.
Options come from the environment: ``USE_*``, ``BUILD_*``, ``CMAKE_*`` and those of ``tools/setup_helpers/cmake.py``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import setuptools.command.build_ext
from setuptools import Extension, find_packages, setup

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)
sys.path.insert(0, str(ROOT))

from tools.build_pytorch_libs import build_pytorch  # noqa: E402
from tools.generate_torch_version import get_torch_version  # noqa: E402
from tools.setup_helpers.cmake import CMake  # noqa: E402
from tools.setup_helpers.env import is_debug  # noqa: E402

PACKAGE_DATA = [
    "bin/*",
    "lib/*.so*",
    "lib/*.dylib*",
    "include/**/*.h",
    "share/cmake/**/*.cmake",
]
REQUIREMENTS = [
    "filelock",
    "typing-extensions>=4.10.0",
    'setuptools ; python_version >= "3.12"',
    "sympy",
    "networkx",
    "jinja2",
    "fsspec",
]
#: Commands that ask for metadata only.
WITHOUT_BUILD = {"clean", "egg_info", "sdist", "--help", "--version", "--name"}


class build_ext(setuptools.command.build_ext.build_ext):  # type: ignore[misc]
    """Takes the functorch module from CMake's install folder instead of compiling it."""

    def build_extensions(self) -> None:
        """Copy what CMake built, then build the stub ``torch._C``."""
        for extension in list(self.extensions):
            if extension.name == "functorch._C":
                target = Path(self.get_ext_fullpath(extension.name))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / "functorch" / "functorch.so", target)
                self.extensions.remove(extension)
        super().build_extensions()


def extensions(options: dict[str, str]) -> list[Extension]:
    """Give the extension modules of a configured tree.

    Parameters
    ----------
    options:
        Entries of CMakeCache.txt.

    Returns
    -------
    list[Extension]
        ``torch._C``, a stub that passes on to libtorch_python, and functorch's module where it is built.
    """
    debug = ["-O0", "-g"] if is_debug(options) else []
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    modules = [
        Extension(
            "torch._C",
            sources=["torch/csrc/stub.c"],
            language="c",
            libraries=["torch_python"],
            library_dirs=[str(ROOT / "torch" / "lib")],
            extra_compile_args=["-Wall", "-Wextra", "-fno-strict-aliasing", *debug],
            extra_link_args=[*debug, f"-Wl,-rpath,{origin}/lib"],
        )
    ]
    if CMake.is_on(options.get("BUILD_FUNCTORCH", "OFF")):
        modules.append(Extension("functorch._C", sources=[]))
    return modules


def main() -> None:
    """Build the libraries, then hand over to setuptools."""
    rerun, only = "--cmake" in sys.argv, "--cmake-only" in sys.argv
    sys.argv = [word for word in sys.argv if word not in {"--cmake", "--cmake-only"}]
    version = get_torch_version(ROOT)
    cmake = CMake(ROOT)
    if not WITHOUT_BUILD & set(sys.argv[1:]):
        print(f"-- Building version {version}", flush=True)
        build_pytorch(cmake, version, rerun_cmake=rerun, cmake_only=only)
        if only:
            return
    setup(
        name="torch",
        version=version,
        description="Scaled model of PyTorch's source tree, for rehearsing builds",
        long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
        long_description_content_type="text/markdown",
        license="BSD-3-Clause",
        python_requires=">=3.10",
        install_requires=REQUIREMENTS,
        packages=find_packages(exclude=["tools", "tools.*"]),
        package_data={"torch": PACKAGE_DATA, "torchgen": ["templates/*"]},
        ext_modules=extensions(cmake.cache_entries()),
        cmdclass={"build_ext": build_ext},
        entry_points={"console_scripts": ["torchrun = torch.distributed.run:main"]},
    )


if __name__ == "__main__":
    main()
