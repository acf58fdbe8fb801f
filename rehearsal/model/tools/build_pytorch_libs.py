"""Builds and installs the C++ libraries for setup.py."""

from __future__ import annotations

import importlib.util
import sys

from .setup_helpers.cmake import CMake
from .setup_helpers.env import apply_build_type, share_cflags


def build_pytorch(cmake: CMake, version: str, *, rerun_cmake: bool, cmake_only: bool) -> None:
    """Configure if needed, then compile and install.

    Parameters
    ----------
    cmake:
        The tree.
    version:
        Version of the build.
    rerun_cmake:
        Configure from scratch.
    cmake_only:
        Stop after configuring.

    Raises
    ------
    SystemExit
        If a Python module that code generation imports is missing, or CMake fails.
    """
    for module in ("yaml", "typing_extensions"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"Python module '{module}' is needed to generate code")
    apply_build_type()
    share_cflags()
    cmake.generate(version, rerun=rerun_cmake)
    if not cmake_only:
        cmake.build()
