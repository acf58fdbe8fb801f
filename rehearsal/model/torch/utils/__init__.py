"""Paths for builds of extensions."""

from __future__ import annotations

from pathlib import Path

#: With this as CMAKE_PREFIX_PATH, CMake's find_package(Torch) works.
cmake_prefix_path = str(Path(__file__).parent.parent / "share" / "cmake")
