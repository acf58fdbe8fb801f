"""Where tests get a Debian root with PyTorch's build dependencies, its source, and conda packages of the Pythons."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from platformdirs import user_cache_path
from rattler import install

from groundwork.channel import Channel
from groundwork.errors import ProviderError
from groundwork.machine import machine_platform
from groundwork.network.channel_logins import Channels
from megabuild.configs.config import load
from megabuild.configs.render import render
from megabuild.plan.solving import solved
from megabuild.providers import local_channel
from megabuild.providers.debian import root
from megabuild.providers.environment import ProviderRequest
from megabuild.providers.local.interpreters import some_of
from megabuild.providers.select import choose_provider

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
    return cuda_inputs(cuda=False)


def cuda_inputs(*, cuda: bool = True) -> DebianInputs:
    """The provider's root with CUDA and its source; skips the test where there is none."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    try:
        made = root.make(debian_cache() / "debian", print, cuda=cuda)
    except ProviderError as error:
        pytest.skip(error.message)
    return DebianInputs(root=made.path, source=made.source)


def python_channel(pythons: tuple[str, ...], packages: Sequence[str] = PACKAGES) -> Channel:
    """A channel with these Pythons and what PyTorch needs in each."""
    given = os.environ.get("MEGABUILD_TEST_CHANNEL", "")
    if given:
        return Channel.parse(given)
    config = load(Path(__file__).parents[2], f"{machine_platform().replace('-', '_')}_cpu_debian")
    request = ProviderRequest(config=config, planned=(), cache=debian_cache(), report=print)
    made = local_channel.make(request, packages, some_of(pythons, print), survey=False)
    return Channel.of_folder(made.path)


def install_packages(
    specs: Sequence[str],
    channels: Sequence[Channel],
    folder: Path,
    virtual: Mapping[str, str] | None = None,
) -> None:
    """Solve for packages and install them into a folder; ``virtual`` packages replace this machine's."""
    platform = machine_platform()
    given = Channels(by_priority=tuple(channels))
    records = solved(specs, given, platform, virtual=virtual or {}, what="environment", remedy="")
    with tempfile.TemporaryDirectory() as cache:
        asyncio.run(install(records, target_prefix=folder, cache_dir=Path(cache), show_progress=False))


def install_cuda_environment(repository: Path, target: Path, more: Sequence[str]) -> None:
    """Install what Debian's config for CUDA builds with, for Python 3.12, and more packages."""
    config = load(repository, "linux_64_cuda124_debian")
    planned = render(config, repository / "recipe" / "recipe.yaml")
    request = ProviderRequest(config=config, planned=planned, cache=debian_cache(), report=print)
    made = choose_provider(request).provide()
    asked = (spec for package in planned for spec in (*package.host, *package.staging_host))
    host = [spec for spec in dict.fromkeys(asked) if not spec.startswith(("libtorch", "python"))]
    virtual = {"__glibc": made.virtual_packages["__glibc"], "__cuda": "12.4"}
    install_packages([*host, "python 3.12.*", *more], made.channels, target, virtual)


def debian_cache() -> Path:
    # The user's own: a root and a channel take minutes to make, and builds want them anyway.
    return Path(os.environ.get("MEGABUILD_CACHE") or user_cache_path("megabuild"))
