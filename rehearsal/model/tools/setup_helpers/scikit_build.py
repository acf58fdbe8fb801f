"""Pass the version to scikit-build-core, and print the environment's variables as CMake code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.generate_torch_version import get_torch_version
from tools.setup_helpers.cmake import CMake

ROOT = Path(__file__).resolve().parents[2]
#: Variables that scikit-build-core sets.
NOT_OURS = {"CMAKE_INSTALL_PREFIX", "Python_EXECUTABLE"}


def dynamic_metadata(settings: Mapping[str, object], project: Mapping[str, object]) -> dict[str, str]:
    """Return the metadata that pyproject.toml lacks: the version."""
    return {"version": get_torch_version(ROOT)}


if __name__ == "__main__":
    for _name, _value in CMake(ROOT).defines(get_torch_version(ROOT)).items():
        if _name not in NOT_OURS:
            print(f'set({_name} [==[{_value}]==] CACHE STRING "from the environment" FORCE)')
