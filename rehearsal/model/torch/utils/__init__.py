"""Paths that builds of extensions ask for."""

from __future__ import annotations

from pathlib import Path

#: Give this to CMake as CMAKE_PREFIX_PATH to make find_package(Torch) work.
cmake_prefix_path = str(Path(__file__).parent.parent / "share" / "cmake")
