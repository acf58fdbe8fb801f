"""The variables of conda-smithy's build scripts: what means the same here."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence

from groundwork.errors import UsageError

CONTAINERS = ("docker", "podman")
_ENGINE, _RUN_ARGS, _IMAGE = "DOCKER_EXECUTABLE", "CONDA_FORGE_DOCKER_RUN_ARGS", "DOCKER_IMAGE"


def chosen_image(environ: Mapping[str, str]) -> str:
    """Return the container image that was chosen in place of the config's, or nothing."""
    return environ.get(_IMAGE, "").strip()


def list_engines(environ: Mapping[str, str]) -> Sequence[str]:
    """Return the container engines to try: the one that ``DOCKER_EXECUTABLE`` names, else docker, then podman.

    Raises UsageError: It names another program.
    """
    named = environ.get(_ENGINE, "").strip()
    if not named:
        return CONTAINERS
    name = os.path.basename(named)
    if name not in CONTAINERS or (named != name and shutil.which(name) != named):
        raise UsageError(
            f"{_ENGINE} is '{named}', and containers are run with the docker or podman that is first on PATH",
            f"set it to docker or podman, or unset it and use --engine {CONTAINERS[1]}",
        )
    return (name,)


def read_run_arguments(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return further arguments of ``docker run``.

    Raises UsageError: They cannot be taken apart as a shell would.
    """
    try:
        return tuple(shlex.split(environ.get(_RUN_ARGS, "")))
    except ValueError as error:
        raise UsageError(f"{_RUN_ARGS} cannot be read: {error}", "quote it as for a shell") from error
