"""Where tests get a Debian root with PyTorch's build dependencies, its source, and conda packages of the Pythons."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from groundwork.errors import ProviderError
from megabuild.providers import local_channel
from megabuild.providers.debian import root
from megabuild.providers.environment import machine_platform
from megabuild.providers.local.interpreters import some_of

# PyTorch 2.6 imports pkg_resources and predates pybind11 3.
PACKAGES = ("numpy", "pybind11 <3", "setuptools <75", "pyyaml", "typing_extensions")


@dataclass(frozen=True, kw_only=True)
class DebianInputs:
    """What a build of Debian's PyTorch starts from."""

    root: Path
    source: Path


def debian_inputs() -> DebianInputs:
    """The root and the source that the environment names, or the provider's; skips the test where it has none."""
    given, source = (os.environ.get(f"MEGABUILD_TEST_DEBIAN_{name}", "") for name in ("ROOT", "SOURCE"))
    if given and source:
        return DebianInputs(root=Path(given), source=Path(source))
    if shutil.which("mmdebstrap") is None:
        pytest.skip(
            "mmdebstrap is not installed, and MEGABUILD_TEST_DEBIAN_ROOT and _SOURCE name no root and source"
        )
    try:
        made = root.make(debian_cache() / "debian", print)
    except ProviderError as error:
        pytest.skip(error.message)
    return DebianInputs(root=made.path, source=made.source)


def cuda_inputs() -> DebianInputs:
    """The provider's root with CUDA and its source; skips the test where there is none."""
    try:
        made = root.make(debian_cache() / "debian", print, cuda=True)
    except ProviderError as error:
        pytest.skip(error.message)
    return DebianInputs(root=made.path, source=made.source)


def python_channel(pythons: tuple[str, ...], packages: Sequence[str] = PACKAGES) -> str:
    """The URL of a channel with these Pythons and what PyTorch needs in each."""
    given = os.environ.get("MEGABUILD_TEST_CHANNEL", "")
    if given:
        return given
    made = local_channel.make(
        packages,
        platform=machine_platform(),
        interpreters=some_of(pythons, print),
        cache=debian_cache(),
        stand_ins=False,
        report=print,
    )
    return made.path.as_uri()


def debian_cache() -> Path:
    # The user's own: a root and a channel take minutes to make, and builds want them anyway.
    return Path(os.environ.get("MEGABUILD_CACHE") or user_cache_path("megabuild"))
