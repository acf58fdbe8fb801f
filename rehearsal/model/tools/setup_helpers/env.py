"""What the environment says about a build."""

from __future__ import annotations

import os
from collections.abc import Mapping

BUILD_DIR = "build"


def is_negative(name: str) -> bool:
    """Say whether the environment switches ``name`` off explicitly."""
    return os.environ.get(name, "").upper() in {"OFF", "0", "NO", "FALSE", "N"}


def is_positive(name: str) -> bool:
    """Say whether the environment switches ``name`` on explicitly."""
    return os.environ.get(name, "").upper() in {"ON", "1", "YES", "TRUE", "Y"}


def apply_build_type() -> None:
    """Set ``CMAKE_BUILD_TYPE`` from ``DEBUG`` or ``REL_WITH_DEB_INFO`` where it is not set, else ``Release``."""
    if "CMAKE_BUILD_TYPE" not in os.environ:
        debug, info = is_positive("DEBUG"), is_positive("REL_WITH_DEB_INFO")
        os.environ["CMAKE_BUILD_TYPE"] = "Debug" if debug else "RelWithDebInfo" if info else "Release"


def share_cflags() -> None:
    """Let ``CFLAGS`` count for C++ too where ``CXXFLAGS`` is not set, as PyTorch does."""
    if "CFLAGS" in os.environ:
        os.environ.setdefault("CXXFLAGS", os.environ["CFLAGS"])


def is_debug(options: Mapping[str, str]) -> bool:
    """Say whether a configured tree (its cache entries) is a debug build."""
    return options.get("CMAKE_BUILD_TYPE", os.environ.get("CMAKE_BUILD_TYPE")) == "Debug"
