"""Prints, for CMake to evaluate, what the environment says about a build; used where scikit-build-core builds."""

from __future__ import annotations

from pathlib import Path

from tools.generate_torch_version import get_torch_version
from tools.setup_helpers.cmake import CMake

ROOT = Path(__file__).resolve().parents[2]
#: scikit-build-core's to say.
NOT_OURS = {"CMAKE_INSTALL_PREFIX", "Python_EXECUTABLE"}


def main() -> None:
    """Print a ``set`` for each definition."""
    for name, value in CMake(ROOT).defines(get_torch_version(ROOT)).items():
        if name not in NOT_OURS:
            print(f'set({name} [==[{value}]==] CACHE STRING "from the environment" FORCE)')


if __name__ == "__main__":
    main()
