"""Run CMake for setup.py, with the rules of PyTorch's own module of this name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

#: Environment variables that become CMake variables, in addition to all USE_*, BUILD_* and CMAKE_*.
ADDITIONAL = {
    "_GLIBCXX_USE_CXX11_ABI": "GLIBCXX_USE_CXX11_ABI",
    "BLAS": "BLAS",
    "TORCH_CUDA_ARCH_LIST": "TORCH_CUDA_ARCH_LIST",
}


class CMake:
    """The CMake tree of a source folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.build_dir = root / "build"
        self.cache = self.build_dir / "CMakeCache.txt"

    def cache_entries(self) -> dict[str, str]:
        """Read CMakeCache.txt; empty if there is none."""
        text = self.cache.read_text(encoding="utf-8") if self.cache.exists() else ""
        return dict(re.findall(r"^([^/#:=\n][^:=\n]*):\w+=(.*)$", text, re.MULTILINE))

    def defines(self, version: str) -> dict[str, str]:
        """Return CMake's variables, from the environment and from setup.py.

        Raises
        ------
        SystemExit
            The environment sets ``CMAKE_INSTALL_PREFIX``, which only setup.py may set.
        """
        options = {}
        for name, value in os.environ.items():
            if name in ADDITIONAL:
                options[ADDITIONAL[name]] = value
            elif name.startswith(("BUILD_", "USE_", "CMAKE_")) and name not in {
                "CMAKE_ARGS",
                "CMAKE_GENERATOR",
            }:
                options[name] = value
        if "CMAKE_INSTALL_PREFIX" in options:
            sys.exit(
                "CMAKE_INSTALL_PREFIX must not be set in the environment: setup.py installs below torch/"
            )
        own = sysconfig.get_path("purelib")
        given = options.get("CMAKE_PREFIX_PATH")
        options["CMAKE_PREFIX_PATH"] = f"{own};{given}" if given else own
        options["CMAKE_INSTALL_PREFIX"] = str(self.root / "torch")
        options["Python_EXECUTABLE"] = sys.executable
        options["TORCH_BUILD_VERSION"] = version
        return options

    def generate(self, version: str) -> None:
        """Configure for a version, unless the tree is configured already."""
        if self.cache.exists() and (self.build_dir / "build.ninja").exists():
            return
        self.build_dir.mkdir(exist_ok=True)
        defines = [f"-D{name}={value}" for name, value in sorted(self.defines(version).items())]
        # the environment's arguments come first, so that setup.py's win
        self._run(["-GNinja", *shlex.split(os.environ.get("CMAKE_ARGS", "")), *defines, str(self.root)])

    def build(self) -> None:
        """Compile and install below ``torch/``, with ``MAX_JOBS`` jobs if that is set."""
        jobs = os.environ.get("MAX_JOBS")
        self._run(["--build", ".", "--target", "install", *(["--", "-j", jobs] if jobs else [])])

    def _run(self, arguments: list[str]) -> None:
        print(shlex.join(["cmake", *arguments]), flush=True)
        try:
            subprocess.run(["cmake", *arguments], cwd=self.build_dir, check=True)
        except subprocess.CalledProcessError as error:
            sys.exit(f"cmake failed with exit code {error.returncode}")
