"""The cache of wheels that were compiled here, one folder for each set of inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from groundwork import files
from groundwork.wheel_file import why_broken, with_local_version
from pyg_extensions.install.user_environment import UserEnvironment

_FOLDER = "pyg-compiled"
#: Variables of a user's that make other code of the same source.
_VARIABLES = (
    "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "NVCC_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS",
)  # fmt: skip


def wheel_folder(
    cache: Path,
    release: str,
    source: str,
    target: UserEnvironment,
    archs: Sequence[str],
    environ: Mapping[str, str],
) -> Path:
    """Return the folder of a wheel, by all of its inputs.

    ``release`` is ``torch_scatter-2.1.2``; ``source`` identifies its sources: a hash, or a repository's release.
    """
    inputs = [
        target.torch_version, target.python, target.tag, target.platform, target.glibc, list(archs), source,
        {name: environ[name] for name in _VARIABLES if environ.get(name)},
    ]  # fmt: skip
    digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]
    return cache / _FOLDER / f"{release}-{digest}"


def kept_wheel(folder: Path) -> Path | None:
    """Return the wheel in a folder, if there is one and it is intact."""
    return next((wheel for wheel in sorted(folder.glob("*.whl")) if not why_broken(wheel)), None)


def keep_wheel(wheel: Path, folder: Path, target: UserEnvironment) -> Path:
    """Move a wheel into its folder atomically, with a local version as upstream's have it: ``pt213cu130``."""
    local = f"pt{target.torch_minor.replace('.', '')}{target.tag}"
    with files.scratch(folder) as empty:
        named = with_local_version(wheel, local, empty)
        return named.replace(folder / named.name)
