"""Runs CMake for setup.py, with the rules of PyTorch's own."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from .env import BUILD_DIR, is_negative

OLDEST = (3, 18)
#: Environment variables that become CMake variables, besides all of USE_*, BUILD_* and CMAKE_*.
ADDITIONAL = {
    "_GLIBCXX_USE_CXX11_ABI": "GLIBCXX_USE_CXX11_ABI",
    "ATEN_THREADING": "ATEN_THREADING",
    "BLAS": "BLAS",
    "CUDA_HOST_COMPILER": "CUDA_HOST_COMPILER",
    "CUDNN_INCLUDE_DIR": "CUDNN_INCLUDE_DIR",
    "CUDNN_LIBRARY": "CUDNN_LIBRARY",
    "INSTALL_TEST": "INSTALL_TEST",
    "MKL_THREADING": "MKL_THREADING",
    "ONNX_NAMESPACE": "ONNX_NAMESPACE",
    "OPENSSL_ROOT_DIR": "OPENSSL_ROOT_DIR",
    "PYTHON_LIB_REL_PATH": "PYTHON_LIB_REL_PATH",
    "TORCH_CUDA_ARCH_LIST": "TORCH_CUDA_ARCH_LIST",
    "WERROR": "WERROR",
    "WITH_BLAS": "WITH_BLAS",
}


class CMake:
    """The CMake tree of a source folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.build_dir = root / BUILD_DIR
        self.cache = self.build_dir / "CMakeCache.txt"

    @staticmethod
    def is_on(value: str) -> bool:
        """Say whether CMake takes ``value`` for true."""
        return value.upper() in {"1", "ON", "YES", "TRUE", "Y"}

    def cache_entries(self) -> dict[str, str]:
        """Read CMakeCache.txt; empty if there is none."""
        if not self.cache.exists():
            return {}
        lines = self.cache.read_text(encoding="utf-8").splitlines()
        found = (re.match(r"([^/#:=][^:=]*):\w+=(.*)", line) for line in lines)
        return {match[1]: match[2] for match in found if match}

    def defines(self, version: str) -> dict[str, str]:
        """Collect the definitions that CMake is configured with.

        Parameters
        ----------
        version:
            Version of the build.

        Returns
        -------
        dict[str, str]
            CMake variable to value, from the environment and from what setup.py decides itself.

        Raises
        ------
        SystemExit
            If the environment sets ``CMAKE_INSTALL_PREFIX``, which is setup.py's to choose.
        """
        options = {}
        for name, value in os.environ.items():
            if name in ADDITIONAL:
                options[ADDITIONAL[name]] = value
            elif name.startswith(("BUILD_", "USE_", "CMAKE_")) and name not in {"CMAKE_ARGS", "CMAKE_GENERATOR"}:
                options[name] = value
        if "CMAKE_INSTALL_PREFIX" in options:
            sys.exit("CMAKE_INSTALL_PREFIX should not be set in the environment: setup.py installs below torch/")
        own = sysconfig.get_path("purelib")
        given = options.get("CMAKE_PREFIX_PATH")
        options["CMAKE_PREFIX_PATH"] = f"{own};{given}" if given else own
        options["BUILD_PYTHON"] = "True"
        options["BUILD_TEST"] = str(not is_negative("BUILD_TEST"))
        options["USE_NUMPY"] = str(not is_negative("USE_NUMPY"))
        options["CMAKE_INSTALL_PREFIX"] = str(self.root / "torch")
        options["Python_EXECUTABLE"] = sys.executable
        options["TORCH_BUILD_VERSION"] = version
        return options

    def generate(self, version: str, *, rerun: bool) -> None:
        """Configure, unless that was done before.

        Parameters
        ----------
        version:
            Version of the build.
        rerun:
            Configure from scratch.
        """
        if rerun:
            self.cache.unlink(missing_ok=True)
        if self.cache.exists() and (self.build_dir / "build.ninja").exists():
            return
        self._check_version()
        self.build_dir.mkdir(exist_ok=True)
        defines = [f"-D{name}={value}" for name, value in sorted(self.defines(version).items())]
        # the environment's own arguments first: what setup.py decides must win
        self._run(["-GNinja", *shlex.split(os.environ.get("CMAKE_ARGS", "")), *defines, str(self.root)])

    def build(self) -> None:
        """Compile and install below ``torch/``, with ``MAX_JOBS`` jobs if that is set."""
        kind = self.cache_entries().get("CMAKE_BUILD_TYPE", "Release")
        jobs = os.environ.get("MAX_JOBS")
        self._run(["--build", ".", "--target", "install", "--config", kind, *(["--", "-j", jobs] if jobs else [])])

    def _run(self, arguments: list[str]) -> None:
        print(shlex.join(["cmake", *arguments]), flush=True)
        try:
            subprocess.run(["cmake", *arguments], cwd=self.build_dir, check=True)
        except subprocess.CalledProcessError as error:
            sys.exit(f"cmake ended with status {error.returncode}")

    @staticmethod
    def _check_version() -> None:
        if shutil.which("cmake") is None or shutil.which("ninja") is None:
            sys.exit("cmake and ninja are needed on PATH")
        text = subprocess.run(["cmake", "--version"], check=True, capture_output=True, text=True).stdout
        found = re.search(r"(\d+)\.(\d+)", text)
        if found is None or (int(found[1]), int(found[2])) < OLDEST:
            sys.exit(f"cmake {'.'.join(map(str, OLDEST))} or newer is needed, found: {text.splitlines()[0]}")
