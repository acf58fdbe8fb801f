"""The platforms of a build: of the machine that compiles, and of the packages; ``conda-forge.yml`` names the first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from groundwork.errors import ConfigError
from groundwork.files import read_text

SETTINGS_FILE = "conda-forge.yml"

_KEY = "build_platform"
_PLATFORM = re.compile(r"linux_(64|aarch64|armv7l|ppc64le|riscv64|s390x)|(osx|win)_(64|arm64)")
#: Machine parts of the names of conda-forge's images, by platform.
_IMAGE_MACHINES = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}
_ANVIL = re.compile(r"(/linux-anvil-)(?:x86_64|aarch64)(?=[:@]|$)")
_LARGEST = 10_000_000  # bytes; a feedstock's settings have some thousand


@dataclass(frozen=True, kw_only=True)
class Platforms:
    """Conda's platforms of a build, such as ``linux-64``."""

    build: str  #: of the machine that compiles, and of the programs in build environments
    target: str  #: of the packages, and of the libraries in host environments

    @classmethod
    def native(cls, platform: str) -> Platforms:
        """Return the platforms of a build whose packages are for the machine that compiles them."""
        return cls(build=platform, target=platform)

    @property
    def is_cross(self) -> bool:
        """Whether the packages are for another platform than the machine's that compiles them."""
        return self.build != self.target

    @property
    def cross_from(self) -> str:
        """The platform of the machine that compiles for another one; empty for its own."""
        if self.is_cross:
            return self.build
        return ""

    @property
    def subdirs(self) -> tuple[str, ...]:
        """The subdirs of channels with packages for the build, each once."""
        return tuple(dict.fromkeys((self.target, self.build, "noarch")))

    def of(self, kind: str) -> str:
        """Return the platform of an environment: ``build``, ``staging build``, ``host``, ``run`` or ``test``."""
        if kind.split()[-1] == "build":
            return self.build
        return self.target


def choose_build_platform(root: Path, platform: str, machine: str) -> str:
    """Return the platform of the machine that compiles for ``platform`` in the repository or feedstock ``root``.

    A ``machine`` compiles for its own platform whatever ``conda-forge.yml`` says, as with conda-smithy's
    ``build-locally.py``. For another platform, its ``build_platform`` decides; default: the platform itself.

    Raises ConfigError: conda-forge.yml cannot be read, or the value is not a platform.
    """
    if platform == machine:
        return platform
    return ci_platform(root, platform)


def ci_platform(root: Path, platform: str) -> str:
    """Return the platform of conda-forge's machine that compiles for ``platform`` in a repository or feedstock.

    Raises ConfigError: conda-forge.yml cannot be read, or the value is not a platform.
    """
    path = root / SETTINGS_FILE
    written = _read_settings(path).get(_KEY)
    if written is None:
        return platform
    own = platform.replace("-", "_")
    name = None
    if isinstance(written, dict):
        name = written.get(own, own)
    if not isinstance(name, str) or not _PLATFORM.fullmatch(name):
        example = f"{own}: {own.partition('_')[0]}_64"
        raise ConfigError(
            f"{path}: {_KEY} names no platform of conda for {platform}", f"write below {_KEY}: {example}"
        )
    return name.replace("_", "-")


def image_on(build_platform: str, image: str) -> str:
    """Return a config's container image for the machine that compiles; empty if the config has none.

    conda-forge's images are alike but for the machine in their names. A config that conda-smithy wrote for
    cross-compiling names the right one itself.
    """
    machine = _IMAGE_MACHINES.get(build_platform)
    if machine is None:
        return image
    return _ANVIL.sub(rf"\g<1>{machine}", image)


def _read_settings(path: Path) -> dict[object, object]:
    """Return the keys of conda-forge.yml; none if there is no such file.

    Raises ConfigError: It is not YAML with keys. The message does not quote it, since it may be a link to another file.
    """
    try:
        content = _parse_settings(read_text(path, most=_LARGEST))
    except FileNotFoundError:
        return {}
    except (OSError, YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML", "correct the file") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path}: has no keys", "write lines such as: build_platform: {linux_aarch64: linux_64}"
        )
    return content


@lru_cache(maxsize=16)  # of the same text for each of a repository's configs
def _parse_settings(text: str) -> object:
    return YAML(typ="safe", pure=True).load(text)
