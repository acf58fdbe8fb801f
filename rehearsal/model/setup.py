"""Build the model as PyTorch's own setup.py up to 2.13 builds PyTorch. From 2.13 on CMake builds torch._C.

``python setup.py build`` configures into ``build/`` if there is no ``CMakeCache.txt`` yet, compiles, and installs
below ``torch/``; then setuptools packs these files. ``--cmake-only`` stops after configuring.
Options come from the environment: ``USE_*``, ``BUILD_*``, ``CMAKE_*`` and those of ``tools/setup_helpers/cmake.py``.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import setuptools.command.build_ext
from setuptools import Distribution, Extension, find_packages, setup

ROOT = Path(__file__).resolve().parent
os.chdir(ROOT)
sys.path.insert(0, str(ROOT))

from tools.generate_torch_version import get_torch_version  # noqa: E402
from tools.setup_helpers.cmake import CMake  # noqa: E402

#: The modules that CMake builds from 2.13 on; those of another Python have another name.
MODULES = [f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}" for name in ("_C", "_nccl_ep")]
PACKAGE_DATA = [*MODULES, "bin/*", "lib/*.so*", "lib/*.dylib*", "include/**/*.h", "share/cmake/**/*.cmake"]
REQUIREMENTS = ["filelock", "typing-extensions>=4.10.0", "sympy", "networkx", "jinja2", "fsspec"]
REQUIREMENTS += ['setuptools ; python_version >= "3.12"']
#: Commands that need only metadata.
WITHOUT_BUILD = {"clean", "egg_info", "sdist", "--help", "--version", "--name"}


class build_ext(setuptools.command.build_ext.build_ext):  # type: ignore[misc]
    """Takes the functorch module from CMake's install folder instead of compiling it."""

    def build_extensions(self) -> None:
        """Copy the functorch module, then build the stub ``torch._C`` of releases before 2.13."""
        for extension in list(self.extensions):
            if extension.name == "functorch._C":
                target = Path(self.get_ext_fullpath(extension.name))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / "functorch" / "functorch.so", target)
                self.extensions.remove(extension)
        super().build_extensions()


class PlatformDistribution(Distribution):  # type: ignore[misc]
    """A distribution for one platform, also if setuptools compiles nothing."""

    def has_ext_modules(self) -> bool:
        """Return True: CMake has built the modules."""
        return True


def extensions(options: dict[str, str]) -> list[Extension]:
    """Return the modules that setup.py builds or copies, for a tree with these CMake cache entries."""
    found = []
    if not is_on(options, "MODULES_BY_CMAKE"):
        found.append(stub())
    if is_on(options, "BUILD_FUNCTORCH"):
        found.append(Extension("functorch._C", sources=[]))
    return found


def is_on(options: dict[str, str], name: str) -> bool:
    """Return whether a CMake cache entry is true."""
    return options.get(name, "OFF").upper() in {"1", "ON", "YES", "TRUE", "Y"}


def stub() -> Extension:
    """Return torch._C, which calls libtorch_python."""
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    return Extension(
        "torch._C",
        sources=["torch/csrc/stub.c"],
        libraries=["torch_python"],
        library_dirs=[str(ROOT / "torch" / "lib")],
        extra_link_args=[f"-Wl,-rpath,{origin}/lib"],
    )


def main() -> None:
    """Build the libraries with CMake, then run setuptools."""
    only = "--cmake-only" in sys.argv
    version = get_torch_version(ROOT)
    cmake = CMake(ROOT)
    if not WITHOUT_BUILD & set(sys.argv[1:]):
        if "CFLAGS" in os.environ:  # apply to C++ too, as in PyTorch
            os.environ.setdefault("CXXFLAGS", os.environ["CFLAGS"])
        print(f"-- Building version {version}", flush=True)
        cmake.generate(version)
        if only:
            return
        cmake.build()
    setup(
        name="torch",
        version=version,
        description="Scaled model of PyTorch's source tree, for rehearsing builds",
        license="BSD-3-Clause",
        python_requires=">=3.10",
        install_requires=REQUIREMENTS,
        packages=find_packages(exclude=["tools", "tools.*"]),
        package_data={"torch": PACKAGE_DATA},
        ext_modules=extensions(cmake.cache_entries()),
        distclass=PlatformDistribution,
        cmdclass={"build_ext": build_ext},
        entry_points={"console_scripts": ["torchrun = torch.distributed.run:main"]},
    )


if __name__ == "__main__":
    main()
